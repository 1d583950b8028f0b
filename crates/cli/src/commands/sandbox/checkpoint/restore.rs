use crate::args::RestoreArgs;
use crate::commands::Context;
use crate::commands::sandbox::create;
use crate::failure::{Exit, Failure};
use uuid::Uuid;
use warren_proto::http::CreateSandbox;

/// Characters of a checkpoint's id in the name of a sandbox that got none.
const NAME_LEN: usize = 8;

/// Makes a sandbox from a checkpoint, waits until it runs, shows it.
pub(super) async fn run(context: &Context, args: RestoreArgs) -> Result<Exit, Failure> {
    let no_wait = args.no_wait;
    create::make(context, request(args, context.team_id.clone(), Uuid::new_v4()), no_wait).await
}

fn request(args: RestoreArgs, team_id: Option<String>, unique: Uuid) -> CreateSandbox {
    let start: String = args.id.chars().take(NAME_LEN).collect();
    CreateSandbox {
        name: args.name.unwrap_or_else(|| format!("restore-{start}")),
        checkpoint_id: Some(args.id),
        cpu_cores: args.cpu_cores,
        memory_gb: args.memory_gb,
        timeout_minutes: args.timeout_minutes,
        team_id: args.team_id.or(team_id),
        idempotency_key: Some(unique.simple().to_string()),
        ..CreateSandbox::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{CheckpointCommand, Cli, Command, SandboxCommand};
    use clap::Parser as _;

    #[test]
    fn what_is_typed_becomes_the_request() {
        let words = shlex::split("warren sandbox checkpoint restore kabcdefghij --memory-gb 2").expect("well quoted");
        let args = match Cli::try_parse_from(words).expect("parses").command {
            Command::Sandbox(SandboxCommand::Checkpoint(CheckpointCommand::Restore(args))) => args,
            other => panic!("{other:?}"),
        };
        let request = request(args, Some("team".into()), Uuid::nil());
        assert_eq!(
            (request.name.as_str(), request.checkpoint_id.as_deref()),
            ("restore-kabcdefg", Some("kabcdefghij"))
        );
        assert_eq!(
            (request.docker_image, request.disk_size_gb, request.arch, request.memory_gb),
            (None, None, None, 2.0)
        );
        assert_eq!(
            (request.team_id.as_deref(), request.idempotency_key.map(|key| key.len())),
            (Some("team"), Some(32))
        );
    }
}
