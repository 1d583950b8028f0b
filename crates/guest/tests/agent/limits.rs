//! Much of something.

use crate::client::{Agent, bash};
use warren_proto::guest::command_session::Code;

#[tokio::test]
async fn two_hundred_commands_run_at_once_in_little_memory() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let mut watches = Vec::new();
    for n in 0..200 {
        watches.push((n, client.start(&bash(&format!("sleep 1; echo {n}; exit {}", n % 100))).await));
    }
    for (n, watch) in watches {
        let output = watch.output().await;
        assert_eq!((output.text(), output.code()), (format!("{n}\n").as_str(), n % 100));
    }
    agent.check_memory();
}

#[tokio::test]
async fn a_long_script_runs_as_a_short_one() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let filler = format!(": {}\n", "x".repeat(99));
    let body = format!("echo \"$0|$#|$1\"; echo $LINENO; cat; ls -l /proc/self/fd/200; {}exit 7", filler.repeat(9000));
    for script in [body.clone(), format!("#!/bin/bash\n{body}")] {
        assert!(script.len() > 900_000);
        let mut request = bash(&script);
        request.command.as_mut().unwrap().args.extend(["name".into(), "one".into()]);
        let output = client.start(&request).await.output().await;
        let text = output.text();
        assert!(text.starts_with("name|1|one\n"), "{text} {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.lines().count(), 2, "the script's descriptor is closed");
        assert_eq!(output.code(), 7);
    }
}

#[tokio::test]
async fn what_the_kernel_cannot_take_is_told() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let mut request = bash("echo ${#A}");
    request.command.as_mut().unwrap().envs.insert("A".into(), "'\"\n".repeat(40_000));
    assert_eq!(client.start(&request).await.output().await.text(), "120000\n");
    request.command.as_mut().unwrap().envs.insert("A".into(), "'\"\n".repeat(70_000));
    let output = client.start(&request).await.output().await;
    assert_eq!(output.error_code(), Code::InvalidArgument);
    assert!(output.error.unwrap().message.contains("variable A"));
    let mut request = bash("true");
    request.command.as_mut().unwrap().args.push("x".repeat(200_000));
    let output = client.start(&request).await.output().await;
    assert_eq!(output.error_code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let output = client.start(&bash(&"x".repeat(5 << 20))).await.output().await;
    assert_eq!(output.error_code(), Code::ResourceExhausted);
}
