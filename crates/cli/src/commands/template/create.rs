use super::show_made;
use crate::args::TemplateCreateArgs;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use warren_proto::http::{NewTemplate, StartCommand};

/// Has a template made.
pub(super) async fn run(context: &Context, args: TemplateCreateArgs) -> Result<Exit, Failure> {
    let waits = args.wait;
    let wanted = wanted(args, context.team_id.clone())?;
    let made = context.api.create_template(&wanted).await;
    let template = made.map_err(|error| Failure::from(error).about(&wanted.docker_image))?;
    show_made(context, template, waits).await
}

/// The request for what was typed.
fn wanted(args: TemplateCreateArgs, team_id: Option<String>) -> Result<NewTemplate, Failure> {
    let some = |rules: Vec<String>| (!rules.is_empty()).then_some(rules);
    let env = args.env.into_iter().map(|pair| (pair.key, pair.value)).collect();
    Ok(NewTemplate {
        name: args.name,
        docker_image: args.image,
        start_command: args.start.map(|text| words("--start", &text)).transpose()?,
        ready: args.ready.map(|text| words("--ready", &text)).transpose()?,
        ready_within_secs: args.ready_within,
        cpu_cores: Some(args.cpu_cores),
        memory_gb: Some(args.memory_gb),
        disk_size_gb: Some(args.disk_size_gb),
        environment_vars: Some(env),
        network_allowlist: if args.no_network { Some(Vec::new()) } else { some(args.network_allow) },
        network_denylist: some(args.network_deny),
        team_id: args.team_id.or(team_id),
    })
}

/// The words that a shell would make of it, and nothing more: as they stand after `sandbox create IMAGE --`.
fn words(option: &str, text: &str) -> Result<StartCommand, Failure> {
    let mut words = shlex::split(text).unwrap_or_default().into_iter();
    let executable = words.next().ok_or_else(|| {
        Failure::new(format!("{option} `{text}` is not a command: a quote is not closed, or it is empty"))
    })?;
    Ok(StartCommand { executable, args: words.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, TemplateCommand};
    use clap::Parser as _;

    fn of(words: &[&str]) -> Result<NewTemplate, Failure> {
        let words = ["warren", "template", "create"].iter().chain(words);
        match Cli::try_parse_from(words).expect("parses").command {
            Command::Template(TemplateCommand::Create(args)) => wanted(*args, Some("team".into())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_typed_becomes_the_request() {
        let line =
            ["--image", "a:1", "--start", "sh -c 'a  b; $c'", "--ready", "true", "--ready-within", "9", "--cpu", "2"];
        let request = of(&[&line[..], &["--memory", "0.5", "--disk", "1", "-e", "A=1", "--deny", "h"]].concat());
        let request = request.expect("a request");
        let start = request.start_command.expect("a command");
        assert_eq!((start.executable.as_str(), start.args), ("sh", vec!["-c".to_owned(), "a  b; $c".to_owned()]));
        assert_eq!(request.ready, Some(StartCommand { executable: "true".into(), args: vec![] }));
        assert_eq!((request.ready_within_secs, request.cpu_cores, request.memory_gb), (Some(9), Some(2.0), Some(0.5)));
        assert_eq!(request.environment_vars, Some([("A".to_owned(), "1".to_owned())].into()));
        assert_eq!((request.network_allowlist, request.network_denylist), (None, Some(vec!["h".to_owned()])));
        assert_eq!(request.team_id.as_deref(), Some("team"));
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for text in ["", "  ", "a 'b"] {
            let failure = of(&["--image", "a", "--start", text]).expect_err("refused");
            assert!(failure.lines()[0].contains("--start"), "{text}");
        }
    }
}
