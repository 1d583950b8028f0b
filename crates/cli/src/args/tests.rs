use super::*;
use clap::CommandFactory;

fn parse(line: &str) -> Result<Command, clap::Error> {
    let words = shlex::split(line).expect("a test line is well quoted");
    Cli::try_parse_from(std::iter::once("warren".to_owned()).chain(words)).map(|cli| cli.command)
}

fn run(line: &str) -> RunArgs {
    match parse(line) {
        Ok(Command::Sandbox(SandboxCommand::Run(args))) => args,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_grammar_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn everything_after_the_command_belongs_to_it() {
    for line in [
        "sandbox run s1 -- ls -la --output x",
        "sandbox run s1 ls -la --output x",
        "sandbox run -w /tmp s1 ls -la --output x",
        "sandbox run s1 -w /tmp -- ls -la --output x",
    ] {
        let args = run(line);
        assert_eq!(args.id, "s1", "{line}");
        assert_eq!(args.command, ["ls", "-la", "--output", "x"], "{line}");
    }
    assert_eq!(run("sandbox run s1 -w /tmp -e A=b=c -u bob --timeout 5 -- id").env[0].value, "b=c");
}

#[test]
fn values_that_mean_nothing_are_refused() {
    for line in [
        "sandbox run s1",
        "sandbox run s1 --timeout 0 ls",
        "sandbox run s1 -e NOVALUE ls",
        "sandbox create",
        "sandbox create img --network-allow a --network-deny b",
        "sandbox create img --arch m68k",
        "sandbox list --page 0",
        "sandbox list -o yaml",
        "sandbox delete",
        "sandbox delete s1 --all",
        "sandbox create img --idle-action pause",
        "sandbox create img --idle-timeout 5 --idle-action sleep",
        "sandbox fork",
        "sandbox fork s1 --count 0",
        "sandbox reset",
        "snapshot list --sandbox s1 --team t1",
        "snapshot delete",
        "template create --start x",
        "template create --image x --allow a --deny b",
        "template create --image x --ready true --ready-within 0",
        "images import x",
        "images remove",
        "serve --tls-cert x",
        "serve --listen nowhere",
        "serve --accel hvf",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn ids_may_have_commas_between_them() {
    match parse("sandbox delete s1,s2 s3") {
        Ok(Command::Sandbox(SandboxCommand::Delete(args))) => assert_eq!(args.ids, ["s1", "s2", "s3"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unlimited_lifetimes_can_be_asked_for() {
    for (line, minutes) in
        [("sandbox create img --timeout-minutes -1", -1), ("sandbox create img --timeout-minutes=0", 0)]
    {
        match parse(line) {
            Ok(Command::Sandbox(SandboxCommand::Create(args))) => assert_eq!(args.timeout_minutes, minutes),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn global_options_stand_anywhere_before_a_command_of_the_guest() {
    for line in ["warren --url http://h sandbox list -o json", "warren sandbox list --output json --url http://h"] {
        let cli = Cli::try_parse_from(line.split(' ')).expect("parses");
        assert_eq!(cli.global.output, OutputFormat::Json);
        assert_eq!(cli.global.url.as_deref(), Some("http://h"));
    }
}
