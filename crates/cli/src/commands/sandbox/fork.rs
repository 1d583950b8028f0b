use super::view::{DetailView, ListView};
use super::wait::until_running;
use crate::args::ForkArgs;
use crate::client::ForkOf;
use crate::commands::{Context, now_ms};
use crate::failure::{Exit, Failure};
use crate::printer::{Progress, View, say};
use serde_json::{Value, json};
use warren_model::Status;
use warren_proto::http::{Fork, Sandbox, SandboxList, SecretsPolicy};

/// Forks that were just made.
struct ForkedView {
    list: ListView,
}

impl View for ForkedView {
    fn table(&self) -> String {
        self.list.table()
    }

    fn json(&self) -> Value {
        let sandboxes = self.list.list.sandboxes.iter().cloned();
        json!({ "sandboxes": sandboxes.map(|sandbox| DetailView { sandbox }.json()).collect::<Vec<_>>() })
    }

    fn ids(&self) -> Vec<String> {
        self.list.ids()
    }
}

/// Forks a running sandbox.
pub(super) async fn run(context: &Context, args: ForkArgs) -> Result<Exit, Failure> {
    let id = args.id.clone();
    fork(context, ForkOf::Sandbox(&id), args).await
}

/// Makes forks, waits until they run, shows them. Those that do not run are told apart: the others are there all the same.
pub(crate) async fn fork(context: &Context, of: ForkOf<'_>, args: ForkArgs) -> Result<Exit, Failure> {
    let no_wait = args.no_wait;
    let text = format!("forking {}", of.id());
    let wanted = wanted(args);
    let forked = Progress::during(&context.printer, &text, context.api.fork(of, &wanted)).await;
    let forked = forked.map_err(|error| Failure::from(error).about(of.id()))?;
    let mut sandboxes: Vec<Sandbox> = forked.sandboxes.into_iter().map(|made| made.sandbox).collect();
    let mut exit = Exit::Success;
    for sandbox in sandboxes.iter_mut().filter(|sandbox| !no_wait && Status::from(sandbox.status) != Status::Running) {
        if let Err(failure) = until_running(context, sandbox).await {
            failure.lines().iter().for_each(|line| say(line));
            exit = Exit::Failure;
        }
        // As it was told before, if it cannot be had now.
        *sandbox = context.api.get_sandbox(&sandbox.id).await.unwrap_or_else(|_| sandbox.clone());
    }
    let total = sandboxes.len() as u64;
    let list = SandboxList { sandboxes, total, page: 1, per_page: total as u32, has_next: false };
    context.printer.show(&ForkedView { list: ListView { list, now_ms: now_ms() } })?;
    Ok(exit)
}

/// The request for what was typed.
fn wanted(args: ForkArgs) -> Fork {
    let pairs = |pairs: Vec<crate::args::Pair>| {
        (!pairs.is_empty()).then(|| pairs.into_iter().map(|pair| (pair.key, pair.value)).collect())
    };
    Fork {
        count: Some(args.count),
        name: args.name,
        labels: (!args.label.is_empty()).then_some(args.label),
        timeout_minutes: args.timeout_minutes,
        environment_vars: pairs(args.env),
        secrets_policy: args.drop_secrets.then_some(SecretsPolicy::Drop),
        secrets: pairs(args.secret),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, SandboxCommand};
    use clap::Parser as _;

    fn of(line: &str) -> Fork {
        let words = shlex::split(&format!("warren sandbox fork {line}")).expect("well quoted");
        match Cli::try_parse_from(words).expect("parses").command {
            Command::Sandbox(SandboxCommand::Fork(args)) => wanted(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_typed_becomes_the_request() {
        let fork = of("s1 -n 8 --name b -l x -l y --timeout -1 -e A=1 --secret B=2 --drop-secrets");
        assert_eq!((fork.count, fork.name.as_deref(), fork.timeout_minutes), (Some(8), Some("b"), Some(-1)));
        assert_eq!(fork.labels, Some(vec!["x".to_owned(), "y".to_owned()]));
        assert_eq!(fork.environment_vars, Some([("A".to_owned(), "1".to_owned())].into()));
        assert_eq!(fork.secrets, Some([("B".to_owned(), "2".to_owned())].into()));
        assert_eq!(fork.secrets_policy, Some(SecretsPolicy::Drop));
    }

    #[test]
    fn what_is_not_said_is_the_sandboxs() {
        assert_eq!(of("s1"), Fork { count: Some(1), ..Fork::default() });
    }
}
