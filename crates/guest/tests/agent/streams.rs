//! Output under way: much, slow, to nobody.

use crate::client::{Agent, bash, wait_for};
use std::time::Duration;
use warren_proto::guest::command_session::{DataEvent, Event, Output};

#[tokio::test]
async fn ten_megabytes_are_whole_and_in_order() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let file = agent.path("bytes");
    let script = format!("head -c 10485760 /dev/urandom | tee {file} | tee /dev/stderr");
    let output = client.run(&script).await;
    let wanted = std::fs::read(&file).unwrap();
    assert!(output.stdout == wanted && output.stderr == wanted, "{} {}", output.stdout.len(), output.stderr.len());
    assert_eq!(output.code(), 0);
}

#[tokio::test]
async fn output_comes_as_it_is_printed() {
    let agent = Agent::start();
    let mut watch = agent.connect().await.start(&bash("echo first; sleep 1000")).await;
    watch.pid().await;
    let first = Event::Data(DataEvent { output: Some(Output::Stdout("first\n".into())) });
    assert_eq!(watch.event().await, first);
}

#[tokio::test]
async fn a_slow_reader_holds_its_own_command_up_and_nothing_else() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let file = agent.path("count");
    let script = format!("for i in $(seq 1 300); do head -c 65536 /dev/zero; echo $i > {file}; done");
    let mut slow = Vec::new();
    for _ in 0..20 {
        slow.push(client.start(&bash(&script)).await);
    }
    // None of these streams is read: their windows fill up, and the commands wait.
    let other = agent.connect().await;
    assert_eq!(other.run("echo fine").await.text(), "fine\n");
    let count = || std::fs::read_to_string(&file).unwrap_or_default();
    let mut before = count();
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = count();
        if now == before && !now.is_empty() {
            break;
        }
        before = now;
    }
    assert!(count().trim().parse::<u32>().unwrap() < 300, "a command went on without a reader");
    agent.check_memory();
    let output = slow.pop().unwrap().output().await;
    assert_eq!(output.stdout.len(), 300 * 65536);
}

#[tokio::test]
async fn a_command_without_reader_goes_on() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let file = agent.path("done");
    let mut watch = client.start(&bash(&format!("head -c 30000000 /dev/zero; echo > {file}"))).await;
    watch.pid().await;
    drop(watch);
    wait_for("end of the command", || std::path::Path::new(&file).exists()).await;
    // The same when the whole connection is lost.
    let file = agent.path("done too");
    let mut watch = client.start(&bash(&format!("head -c 30000000 /dev/zero; echo > '{file}'"))).await;
    watch.pid().await;
    client.hang_up();
    wait_for("end of the command", || std::path::Path::new(&file).exists()).await;
    assert_eq!(agent.connect().await.run("echo back").await.text(), "back\n");
}

#[tokio::test]
async fn a_command_may_close_its_output_early() {
    let agent = Agent::start();
    let output = agent.connect().await.run("echo a; exec >&- 2>&-; sleep 0.2; exit 4").await;
    assert_eq!((output.text(), output.code()), ("a\n", 4));
}
