//! One command from start to end.

use crate::client::{Agent, bash, wait_for};
use warren_proto::guest::command_session::{Code, StartRequest};

#[tokio::test]
async fn outputs_are_apart_and_codes_exact() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let output = client.run("echo out; echo err >&2; exit 3").await;
    assert_eq!((output.text(), &output.stderr[..], output.code()), ("out\n", &b"err\n"[..], 3));
    for code in [0, 1, 127, 128, 254, 255] {
        let output = client.run(&format!("exit {code}")).await;
        assert_eq!(output.code(), code);
        assert!(output.end.unwrap().exited);
    }
}

#[tokio::test]
async fn a_signal_gives_128_more() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let end = client.run("kill -TERM $$").await.end.unwrap();
    assert_eq!((end.exit_code, end.exited, end.status.as_str()), (143, false, "signal: SIGTERM"));
}

#[tokio::test]
async fn input_that_was_not_asked_for_is_at_its_end() {
    let agent = Agent::start();
    let output = agent.connect().await.run("cat; read x; echo $?").await;
    assert_eq!(output.text(), "1\n");
}

#[tokio::test]
async fn what_runs_in_the_background_lives_on_and_holds_nothing_up() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let begun = std::time::Instant::now();
    let output = client.run("sleep 1000 & setsid sleep 1000 & echo $!").await;
    assert!(begun.elapsed().as_secs() < 10);
    let pid = output.text().trim();
    assert!(client.run(&format!("kill -0 {pid}")).await.code() == 0, "{pid} lives");
    assert_eq!(client.run(&format!("kill {pid}; exit 0")).await.code(), 0);
}

#[tokio::test]
async fn what_was_printed_before_the_end_is_complete_even_if_the_pipe_stays_open() {
    let agent = Agent::start();
    let output = agent.connect().await.run("sleep 1000 & head -c 60000 /dev/zero | tr '\\0' x; exit 0").await;
    assert_eq!(output.stdout.len(), 60_000);
}

#[tokio::test]
async fn signals_and_terminal_are_a_commands_own() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let script =
        "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; ps -o pid=,pgid=,sid= -p $$; ls -l /proc/self/fd | wc -l";
    let output = client.run(script).await;
    let text = output.text();
    let mask = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    // Of the C library's own signals, from 32 on, the test's caller may have made something.
    assert_eq!((mask("SigBlk:"), mask("SigIgn:") & 0x7fff_ffff), (0, 0), "{text}");
    let ids: Vec<&str> = text.lines().nth(3).unwrap().split_ascii_whitespace().collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[0] == output.pid.to_string(), "{text}");
    // No descriptor of the agent, and those that this test has from its own caller.
    let plain = std::process::Command::new("sh").args(["-c", "ls -l /proc/self/fd | wc -l"]).output().unwrap();
    assert_eq!(text.lines().last(), str::from_utf8(&plain.stdout).unwrap().lines().last(), "{text}");
}

#[tokio::test]
async fn environment_folder_and_user_are_as_asked() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let mut request = bash("echo \"$A|$B\"; pwd; id -u; id -G; echo $HOME $USER $LOGNAME");
    let spec = request.command.as_mut().unwrap();
    spec.envs.insert("A".into(), "x y\n\"z\"".into());
    spec.envs.insert("B".into(), "{\"k\": [1, \"'\"]}".into());
    spec.cwd = Some("/usr".into());
    spec.user = Some("65534:4321".into());
    let output = client.start(&request).await.output().await;
    let wanted = "x y\n\"z\"|{\"k\": [1, \"'\"]}\n/usr\n65534\n4321\n/nonexistent nobody nobody\n";
    assert_eq!((output.text(), output.code()), (wanted, 0));
}

#[tokio::test]
async fn what_cannot_be_started_is_named() {
    let agent = Agent::start();
    let client = agent.connect().await;
    type Change = fn(&mut StartRequest);
    let change: [(&str, Change); 5] = [
        ("\"/no/such/folder\"", |r| r.command.as_mut().unwrap().cwd = Some("/no/such/folder".into())),
        ("\"nosuchuser\"", |r| r.command.as_mut().unwrap().user = Some("nosuchuser".into())),
        ("\"/no/such/program\"", |r| r.command.as_mut().unwrap().cmd = "/no/such/program".into()),
        ("\"/etc/passwd\"", |r| r.command.as_mut().unwrap().cmd = "/etc/passwd".into()),
        ("NUL", |r| r.command.as_mut().unwrap().args[1] = "a\0b".into()),
    ];
    for (name, change) in change {
        let mut request = bash("true");
        change(&mut request);
        let output = client.start(&request).await.output().await;
        assert_eq!(output.error_code(), Code::InvalidArgument);
        let message = output.error.unwrap().message;
        assert!(message.contains(name), "{message}");
    }
}

#[tokio::test]
async fn programs_are_looked_up_in_the_commands_path() {
    let agent = Agent::start();
    let mut request = bash("");
    let spec = request.command.as_mut().unwrap();
    (spec.cmd, spec.args) = ("printf".into(), vec!["%s".into(), "found".into()]);
    let output = agent.connect().await.start(&request).await.output().await;
    assert_eq!(output.text(), "found");
}

#[tokio::test]
async fn the_cgroup_of_a_command_goes_with_the_last_of_its_processes() {
    let agent = Agent::start();
    if !agent.has_cgroups() {
        return;
    }
    let client = agent.connect().await;
    let output = client.run("sleep 1000 & cat /proc/self/cgroup | grep ^0:").await;
    let path = output.text().trim().trim_start_matches("0::/").to_owned();
    let folder = std::path::Path::new("/sys/fs/cgroup/unified").join(&path);
    let folder = if folder.exists() { folder } else { std::path::Path::new("/sys/fs/cgroup").join(&path) };
    assert!(folder.exists());
    std::fs::write(folder.join("cgroup.kill"), "1").unwrap();
    wait_for("end of the cgroup", || !folder.exists()).await;
}
