//! Time that is up.

use crate::client::{Agent, bash, wait_for};
use std::time::{Duration, Instant};
use warren_proto::guest::command_session::Code;

/// A call must end within this time after its deadline.
const LATE_MAX: Duration = Duration::from_millis(200);

fn runs(name: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| line.windows(name.len()).any(|window| window == name.as_bytes()))
}

#[tokio::test]
async fn every_process_of_a_late_command_is_killed() {
    let agent = Agent::start();
    let client = agent.connect().await;
    // Arguments of sleep that name this test's own processes.
    let mark = format!("1000.{:09}", std::process::id());
    let script = format!(
        "sleep {mark}1 & setsid sleep {mark}2 & (setsid bash -c 'trap \"\" TERM; sleep {mark}3 & wait' &) ; echo ready; sleep {mark}4"
    );
    let begun = Instant::now();
    let output = client.stream("Start", &bash(&script), Some("1000")).await.output().await;
    let took = begun.elapsed();
    assert_eq!(output.error_code(), Code::DeadlineExceeded);
    assert_eq!(output.text(), "ready\n");
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(1) + LATE_MAX, "{took:?}");
    let is_all = agent.has_cgroups();
    wait_for("end of all processes", || if is_all { !runs(&mark) } else { !runs(&format!("{mark}4")) }).await;
    assert_eq!(client.run("echo next").await.text(), "next\n");
}

#[tokio::test]
async fn the_deadline_holds_when_the_caller_has_gone() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let mark = format!("1001.{:09}", std::process::id());
    let begun = Instant::now();
    let mut watch = client.stream("Start", &bash(&format!("sleep {mark}; true")), Some("500")).await;
    watch.pid().await;
    client.hang_up();
    wait_for("end of the command", || !runs(&mark)).await;
    assert!(begun.elapsed() >= Duration::from_millis(500), "a caller that goes kills nothing");
}

#[tokio::test]
async fn a_command_that_ended_in_time_leaves_its_children_alone() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let output = client.stream("Start", &bash("sleep 1000 & echo $!"), Some("300")).await.output().await;
    let pid = output.text().trim();
    let script = format!("sleep 0.5; kill -0 {pid} && echo alive; kill {pid}");
    assert_eq!(client.run(&script).await.text(), "alive\n");
}

#[tokio::test]
async fn times_that_are_none_are_refused() {
    let agent = Agent::start();
    let client = agent.connect().await;
    for bad in ["0", "-1", "0.5", "x", "12345678901"] {
        let output = client.stream("Start", &bash("true"), Some(bad)).await.output().await;
        assert_eq!(output.error_code(), Code::InvalidArgument, "{bad}");
    }
    let output = client.stream("Start", &bash("true"), None).await.output().await;
    assert_eq!(output.code(), 0);
    let output = client.stream("Start", &bash("true"), Some("2147483648")).await.output().await;
    assert_eq!(output.code(), 0);
}
