use super::view::{DetailView, ListView};
use super::wait::until_running;
use crate::args::{CreateArgs, IdleAction, Pair, VolumeAt};
use crate::commands::{Context, now_ms};
use crate::failure::{Exit, Failure};
use std::collections::BTreeMap;
use uuid::Uuid;
use warren_model::Status;
use warren_proto::http::{CreateSandbox, Sandbox, SandboxList, StartCommand, VolumeMount};

/// Times that a create is sent when its answer got lost; the key makes it one sandbox.
const TRIES_MAX: u32 = 3;

/// Makes a sandbox, waits until it runs, shows it.
pub(super) async fn run(context: &Context, args: CreateArgs) -> Result<Exit, Failure> {
    let no_wait = args.no_wait;
    make(context, request(args, context.team_id.clone(), Uuid::new_v4()), no_wait).await
}

/// Makes what was asked for, waits until it runs unless nobody wants that, shows it.
pub(super) async fn make(context: &Context, request: CreateSandbox, no_wait: bool) -> Result<Exit, Failure> {
    let mut sandbox = create(context, &request).await?;
    let status = Status::from(sandbox.status);
    // The server holds its answer for a moment, so that most sandboxes run already.
    if !no_wait && status != Status::Running {
        until_running(context, &sandbox).await?;
        sandbox =
            context.api.get_sandbox(&sandbox.id).await.map_err(|error| Failure::from(error).about(&sandbox.id))?;
    }
    show(context, sandbox)?;
    Ok(Exit::Success)
}

async fn create(context: &Context, request: &CreateSandbox) -> Result<Sandbox, Failure> {
    let mut tries = 1;
    loop {
        match context.api.create_sandbox(request).await {
            Ok(created) => return Ok(created.sandbox),
            Err(error) if tries < TRIES_MAX && error.is_lost() => tries += 1,
            Err(error) => {
                let source = request.docker_image.as_deref().or(request.checkpoint_id.as_deref());
                return Err(Failure::from(error).about(source.unwrap_or("create")));
            }
        }
    }
}

fn show(context: &Context, sandbox: Sandbox) -> Result<(), Failure> {
    if context.printer.is_json() {
        context.printer.show(&DetailView { sandbox })?;
    } else {
        let list = SandboxList { sandboxes: vec![sandbox], total: 1, page: 1, per_page: 1, has_next: false };
        context.printer.show(&ListView { list, now_ms: now_ms() })?;
    }
    Ok(())
}

/// The request for what was typed. `unique` gives the idempotency key and the end of a made-up name.
fn request(args: CreateArgs, team_id: Option<String>, unique: Uuid) -> CreateSandbox {
    let key = unique.simple().to_string();
    let advanced_configs = advanced(&args);
    let mut command = args.command.into_iter();
    let start_command = command.next().map(|executable| StartCommand { executable, args: command.collect() });
    let allow = if args.no_network { Some(Vec::new()) } else { some(args.network_allow) };
    CreateSandbox {
        name: args.name.unwrap_or_else(|| name_for(&args.image, &key[..4])),
        docker_image: Some(args.image),
        arch: Some(args.arch),
        start_command,
        cpu_cores: args.cpu_cores,
        memory_gb: args.memory_gb,
        disk_size_gb: Some(args.disk_size_gb),
        network_allowlist: allow,
        network_denylist: some(args.network_deny),
        timeout_minutes: args.timeout_minutes,
        idle_timeout_minutes: args.idle_timeout_minutes.map(i64::from),
        environment_vars: pairs(args.env),
        secrets: pairs(args.secret),
        labels: args.label,
        volumes: mounts(args.volume),
        advanced_configs,
        team_id: args.team_id.or(team_id),
        idempotency_key: Some(key),
        ..CreateSandbox::default()
    }
}

/// What is ours alone travels in a field that every client can send.
fn advanced(args: &CreateArgs) -> Option<serde_json::Map<String, serde_json::Value>> {
    let action = args.idle_action.map(|action| match action {
        IdleAction::Pause => "pause",
        IdleAction::Terminate => "terminate",
    });
    let given = [
        ("idle_action", action.map(Into::into)),
        ("auto_resume", args.auto_resume.map(Into::into)),
        ("template", args.no_template.then_some(false.into())),
    ];
    let configs: serde_json::Map<_, _> =
        given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    (!configs.is_empty()).then_some(configs)
}

fn some(rules: Vec<String>) -> Option<Vec<String>> {
    (!rules.is_empty()).then_some(rules)
}

fn mounts(volumes: Vec<VolumeAt>) -> Option<Vec<VolumeMount>> {
    let mount = |VolumeAt { name, path, read_only }| VolumeMount { name, mount_path: path, read_only };
    (!volumes.is_empty()).then(|| volumes.into_iter().map(mount).collect())
}

fn pairs(pairs: Vec<Pair>) -> Option<BTreeMap<String, String>> {
    (!pairs.is_empty()).then(|| pairs.into_iter().map(|pair| (pair.key, pair.value)).collect())
}

/// `vm-<image without registry, tag and odd characters>-<suffix>`.
fn name_for(image: &str, suffix: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    let word = last.split([':', '@']).next().unwrap_or(last).to_lowercase();
    let parts = word.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    std::iter::once("vm").chain(parts).chain([suffix]).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, SandboxCommand};
    use clap::Parser as _;

    fn of(line: &str) -> CreateSandbox {
        let words = shlex::split(&format!("warren sandbox create {line}")).expect("well quoted");
        match Cli::try_parse_from(words).expect("parses").command {
            Command::Sandbox(SandboxCommand::Create(args)) => request(*args, Some("team".into()), Uuid::nil()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_typed_becomes_the_request() {
        let request = of("reg/app:1 -e A=1 --secret B=2 -l x -l y --idle-timeout-minutes 5 -- serve --port 80");
        assert_eq!(request.name, "vm-app-0000");
        assert_eq!(request.docker_image.as_deref(), Some("reg/app:1"));
        let command = request.start_command.expect("a command");
        assert_eq!((command.executable.as_str(), command.args), ("serve", vec!["--port".to_owned(), "80".to_owned()]));
        assert_eq!(request.environment_vars, Some([("A".to_owned(), "1".to_owned())].into()));
        assert_eq!(request.secrets, Some([("B".to_owned(), "2".to_owned())].into()));
        assert_eq!((request.labels, request.idle_timeout_minutes), (vec!["x".to_owned(), "y".to_owned()], Some(5)));
        assert_eq!(request.idempotency_key.expect("a key").len(), 32);
        assert_eq!(request.team_id.as_deref(), Some("team"));
    }

    #[test]
    fn no_network_is_an_empty_allow_list_and_nothing_said_is_no_list() {
        assert_eq!(of("img --no-network").network_allowlist, Some(vec![]));
        let request = of("img");
        assert_eq!((request.network_allowlist, request.network_denylist), (None, None));
        assert_eq!(of("img --network-deny a --network-deny b").network_denylist, Some(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn volumes_are_typed_as_for_prime() {
        let mount = |name: &str, path: &str, read_only| VolumeMount {
            name: name.to_owned(),
            mount_path: path.to_owned(),
            read_only,
        };
        let request = of("img --volume a/b:/data --volume c:/x:y:ro");
        assert_eq!(request.volumes, Some(vec![mount("a/b", "/data", false), mount("c", "/x:y", true)]));
        for bad in ["a", ":/a", "a:", "a::ro"] {
            assert!(Cli::try_parse_from(["warren", "sandbox", "create", "img", "--volume", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_ours_alone_is_sent_if_it_was_said() {
        assert_eq!(of("img --idle-timeout 5").advanced_configs, None);
        let said = of("img --idle-timeout 5 --idle-action pause --auto-resume=false --no-template");
        let configs = serde_json::Value::from(said.advanced_configs.expect("some"));
        assert_eq!(configs, serde_json::json!({"idle_action": "pause", "auto_resume": false, "template": false}));
        let resumes = of("img --auto-resume").advanced_configs.expect("some");
        assert_eq!(resumes["auto_resume"], true);
    }

    #[test]
    fn names_come_from_the_image() {
        assert_eq!(name_for("localhost:5000/team/My_App.x:v1@sha256:00", "ab12"), "vm-my-app-x-ab12");
        assert_eq!(name_for("", "ab12"), "vm-ab12");
    }
}
