//! The binary against a small server: what is sent, what is printed, how it exits.

#[path = "client/server.rs"]
mod server;

use serde_json::{Value, json};
use server::Server;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// What one run of the binary did.
struct Ran {
    code: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Ran {
    fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("stdout is UTF-8")
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.text(), self.stderr))
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ran { code: output.status.code().expect("no signal"), stdout: output.stdout, stderr }
    }
}

fn command(server: &Server, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warren"));
    command.args(words).env_clear().env("WARREN_URL", server.url()).env("WARREN_API_KEY", "key").stdin(Stdio::null());
    command
}

fn warren(server: &Server, words: &[&str]) -> Ran {
    command(server, words).output().expect("it runs").into()
}

fn warren_with_stdin(server: &Server, words: &[&str], stdin: &[u8]) -> Ran {
    let mut command = command(server, words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    child.stdin.take().expect("a pipe").write_all(stdin).expect("it reads its stdin");
    child.wait_with_output().expect("it ends").into()
}

#[test]
fn create_waits_until_the_sandbox_runs() {
    let server = Server::start();
    let ran = warren(&server, &["sandbox", "create", "debian:12", "--label", "x", "-q"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "s1\n"), "{}", ran.stderr);
    let sent = server.sent("POST /api/v1/sandbox");
    assert_eq!((&sent["docker_image"], &sent["labels"]), (&json!("debian:12"), &json!(["x"])));
    assert!(server.count("POST /api/v1/sandbox/status:batchGet") >= 2, "it asks until RUNNING");
}

#[test]
fn create_tells_why_a_sandbox_did_not_run() {
    let server = Server::start();
    let ran = warren(&server, &["sandbox", "create", "broken"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, ""));
    assert!(ran.stderr.contains("error: s1: ERROR: no such tag"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: "), "{}", ran.stderr);
}

#[test]
fn answers_are_data_on_stdout_in_the_form_asked_for() {
    let server = Server::start();
    let list = warren(&server, &["sandbox", "list", "-o", "json"]).json();
    assert_eq!((&list["total"], &list["sandboxes"][0]["id"]), (&json!(1), &json!("s1")));
    let table = warren(&server, &["sandbox", "list"]).text();
    assert!(table.starts_with("ID") && table.contains("RUNNING"), "{table}");
    assert_eq!(warren(&server, &["sandbox", "get", "s1", "-o", "json"]).json()["docker_image"], "debian:12");
    assert_eq!(warren(&server, &["sandbox", "logs", "s1"]).text(), "booted\n");
}

#[test]
fn run_passes_output_and_exit_code_through() {
    let server = Server::start();
    let ran = warren(&server, &["sandbox", "run", "s1", "-w", "/tmp", "--", "exit-with", "7", "-q"]);
    assert_eq!((ran.code, ran.text().as_str(), ran.stderr.as_str()), (7, "out\n\u{1}", "err\n"));
    let sent = server.started();
    assert_eq!(
        (sent.cmd.as_str(), sent.args, sent.cwd.as_deref()),
        ("exit-with", vec!["7".into(), "-q".into()], Some("/tmp"))
    );
    let document = warren(&server, &["sandbox", "run", "-o", "json", "s1", "exit-with 7"]).json();
    assert_eq!((&document["exit_code"], &document["stderr"]), (&json!(7), &json!("err\n")));
}

#[test]
fn run_passes_stdin_and_its_end() {
    let server = Server::start();
    let input = vec![b'x'; 300_000];
    let ran = warren_with_stdin(&server, &["sandbox", "run", "--stdin", "s1", "cat"], &input);
    assert_eq!((ran.code, ran.stdout.len()), (0, input.len()), "{}", ran.stderr);
    assert_eq!(ran.stdout, input);
}

#[test]
fn run_tells_its_own_failures_from_the_commands() {
    let server = Server::start();
    for (words, code, message) in [
        (&["sandbox", "run", "gone", "true"][..], 125, "gone: TERMINATED: OOM_KILLED: out of memory"),
        (&["sandbox", "run", "paused", "true"][..], 125, "warren sandbox resume paused"),
        (&["sandbox", "run", "s1", "--timeout", "1", "sleep"][..], 124, "killed after 1 s"),
        (&["sandbox", "run", "s1", "no-such-program"][..], 125, "no such program"),
        (&["sandbox", "run", "s1", "cut"][..], 125, "connection"),
        (&["sandbox", "shell", "s1"][..], 125, "not a terminal"),
    ] {
        let ran = warren(&server, words);
        assert_eq!(ran.code, code, "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn files_go_up_and_down_whole() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a directory");
    let (up, down) = (dir.path().join("up"), dir.path().join("down"));
    let content: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(&up, &content).expect("written");
    let (up, down) = (up.to_str().expect("UTF-8"), down.to_str().expect("UTF-8"));
    let ran = warren(&server, &["sandbox", "upload", "s1", up, "/data/x.bin", "-o", "json"]);
    assert_eq!((&ran.json()["size"], &ran.json()["path"]), (&json!(3_000_000), &json!("/data/x.bin")));
    let ran = warren(&server, &["sandbox", "download", "s1", "/data/x.bin", down]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(std::fs::read(down).expect("read") == content);
    let ran = warren(&server, &["sandbox", "download", "s1", "/missing", down]);
    assert!(ran.code == 1 && ran.stderr.contains("/missing: s1: no such file"), "{}", ran.stderr);
    let ran = warren(&server, &["sandbox", "upload", "s1", "/nonexistent", "/x"]);
    assert!(ran.code == 1 && ran.stderr.contains("cannot read /nonexistent"), "{}", ran.stderr);
}

#[test]
fn delete_by_label_asks_unless_told_not_to() {
    let server = Server::start();
    let ran = warren(&server, &["sandbox", "delete", "--label", "x"]);
    assert!(ran.code == 1 && ran.stderr.contains("--yes"), "{}", ran.stderr);
    let ran = warren(&server, &["sandbox", "delete", "--label", "x", "--yes"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "s1 deleted\n"));
    assert!(ran.stderr.contains("error: s2: it is stuck"), "{}", ran.stderr);
    let sent = server.sent("DELETE /api/v1/sandbox");
    assert_eq!((&sent["labels"], &sent["user_id"], &sent["all_users"]), (&json!(["x"]), &json!("u1"), &json!(false)));
    assert_eq!(warren(&server, &["sandbox", "delete", "s1"]).code, 0);
}

#[test]
fn forks_are_waited_for_and_shown() {
    let server = Server::start();
    let ran = warren(&server, &["sandbox", "fork", "s1", "--count", "2", "--secret", "A=b", "--drop-secrets"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.text().lines().filter(|line| line.starts_with("s1") && line.contains("RUNNING")).count(), 2);
    let sent = server.sent("POST /api/v1/sandbox/s1/fork");
    assert_eq!(sent, json!({"count": 2, "secrets_policy": "drop", "secrets": {"A": "b"}}));
    let document = warren(&server, &["snapshot", "fork", "n1", "-o", "json", "--no-wait"]).json();
    assert_eq!(
        (&document["sandboxes"][0]["id"], &document["sandboxes"][1]["status"]),
        (&json!("s1"), &json!("PENDING"))
    );
    assert_eq!(server.sent("POST /api/v1/snapshots/n1/fork"), json!({"count": 1}));
}

#[test]
fn snapshots_are_taken_listed_gone_back_to_and_deleted() {
    let server = Server::start();
    let ran = warren(&server, &["sandbox", "snapshot", "s1", "--name", "x"]);
    assert_eq!(ran.text(), "n1  READY  1.0 KiB stored  the sandbox stood still for 9.5 ms\n", "{}", ran.stderr);
    assert_eq!(server.sent("POST /api/v1/sandbox/s1/snapshots"), json!({"name": "x"}));
    for words in [&["snapshot", "list", "-q"][..], &["snapshot", "list", "--sandbox", "s1", "-q"]] {
        assert_eq!(warren(&server, words).text(), "n1\n");
    }
    assert_eq!(warren(&server, &["sandbox", "reset", "s1", "--snapshot", "n1"]).text(), "s1  RUNNING  generation 3\n");
    assert_eq!(server.sent("POST /api/v1/sandbox/s1/reset"), json!({"snapshot_id": "n1"}));
    let ran = warren(&server, &["sandbox", "reset", "s1", "--snapshot", "other"]);
    assert!(ran.code == 1 && ran.stderr.contains("hint: Wait until it is READY"), "{}", ran.stderr);
    assert_eq!(warren(&server, &["sandbox", "pause", "s1", "-o", "json"]).json()["status"], "PAUSED");
    let ran = warren(&server, &["snapshot", "delete", "n2,n1"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "n1 removed\n"));
    assert!(ran.stderr.contains("error: no snapshot n2"), "{}", ran.stderr);
}

#[test]
fn templates_are_waited_for_if_asked() {
    let server = Server::start();
    let create = ["template", "create", "--image", "debian:12", "--start", "serve 'a b'"];
    let ran = warren(&server, &create);
    assert!(ran.text().contains("MAKING") && ran.stderr.contains("warren template get t1"), "{}", ran.stderr);
    let sent = server.sent("POST /api/v1/templates");
    assert_eq!(sent["start_command"], json!({"executable": "serve", "args": ["a b"]}));
    let ran = warren(&server, &[&create[..], &["--wait"]].concat());
    assert!(ran.code == 0 && ran.text().contains("READY"), "{}", ran.stderr);
    let ran = warren(&server, &["template", "create", "--image", "debian:12", "--ready", "broken", "--wait"]);
    assert!(ran.code == 1 && ran.stderr.contains("error: t1: FAILED: not ready within 1 s"), "{}", ran.stderr);
}

#[test]
fn images_are_pulled_listed_and_removed() {
    let server = Server::start();
    let ran = warren(&server, &["images", "pull", "debian:12", "-q"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "docker.io/library/debian:12\n"), "{}", ran.stderr);
    let ran = warren(&server, &["images", "import", "some/root.tar", "--name", "a:b", "-o", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let sent = server.sent("POST /api/v1/images/import");
    assert!(
        sent["path"].as_str().is_some_and(|path| path.starts_with('/') && path.ends_with("/some/root.tar")),
        "{sent}"
    );
    assert!(warren(&server, &["images", "list"]).text().contains("docker.io/library/debian:12"));
    let ran = warren(&server, &["images", "remove", "docker.io/library/debian:12"]);
    let note = "its bytes stay until the sandboxes that use it have ended";
    assert_eq!(ran.text(), format!("docker.io/library/debian:12 removed; {note}\n"));
    assert_eq!(server.query("DELETE /api/v1/images/local"), "reference=docker.io%2Flibrary%2Fdebian%3A12");
}

#[test]
fn refusals_say_what_to_do() {
    let server = Server::start();
    let ran = warren(&server, &["sandbox", "get", "nosuch"]);
    assert!(
        ran.code == 1 && ran.stderr.starts_with("error: no sandbox nosuch") && ran.stderr.contains("hint: "),
        "{}",
        ran.stderr
    );
    let ran: Ran =
        command(&server, &["sandbox", "list"]).env("WARREN_API_KEY", "wrong").output().expect("it runs").into();
    assert!(ran.code == 1 && ran.stderr.contains("WARREN_API_KEY"), "{}", ran.stderr);
    let nobody = ["sandbox", "list", "--url", "http://127.0.0.1:1"];
    let ran = warren(&server, &nobody);
    assert!(ran.code == 1 && ran.stderr.contains("warren serve"), "{}", ran.stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let server = Server::start();
    let mut child = command(&server, &["completions", "bash"]).stdout(Stdio::piped()).spawn().expect("it runs");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
