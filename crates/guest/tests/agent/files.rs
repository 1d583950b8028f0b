//! Files up and down.

use crate::client::{Agent, Client, SOON, send_all, wait_for};
use bytes::Bytes;
use http::Method;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

async fn put(client: &Client, path: &str, data: &[u8]) -> (u16, serde_json::Value) {
    client.json(Method::PUT, &format!("/files?path={path}"), data).await
}

fn names(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn files_of_all_sizes_come_back_the_same() {
    let agent = Agent::start();
    let client = agent.connect().await;
    for len in [0usize, 1, 4095, 18 << 10, 1 << 20, 20 << 20] {
        let data: Vec<u8> = (0..len).map(|n| ((n * 31) >> 3) as u8).collect();
        let path = agent.path(&format!("deep/er/{len}"));
        let (status, written) = put(&client, &path, &data).await;
        assert_eq!(
            (status, written["size"].as_u64(), written["path"].as_str()),
            (200, Some(len as u64), Some(&path[..]))
        );
        assert_eq!(std::fs::read(&path).unwrap(), data);
        let answer = client.request(Method::GET, &format!("/download?path={path}"), &[], b"").await;
        assert_eq!(answer.status, 200);
        assert!(!answer.headers.contains_key("content-encoding"));
        assert!(answer.all().await.unwrap() == data);
    }
    agent.check_memory();
}

#[tokio::test]
async fn names_are_bytes() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let (status, _) = put(&client, &format!("{}%2Fa%20%ff%0a", agent.path("")), b"x").await;
    assert_eq!(status, 200);
    let name = std::ffi::OsString::from_vec(b"a \xff\n".to_vec());
    assert_eq!(std::fs::read(agent.folder.path().join(name)).unwrap(), b"x");
}

#[tokio::test]
async fn faults_are_told_apart() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let folder = agent.path("");
    for (path, status, code) in [
        ("relative", 400, "bad_request"),
        ("/tmp/%00x", 400, "bad_request"),
        ("/proc/nothing/x", 404, "no_such_file"),
        (&folder, 400, "is_a_directory"),
        ("/dev/full", 507, "no_space"),
    ] {
        let (found, error) = put(&client, path, b"some data").await;
        assert_eq!((found, error["code"].as_str()), (status, Some(code)), "{path}: {error}");
    }
    for (path, status, code) in [
        ("/no/such/file", 404, "no_such_file"),
        (&folder, 400, "is_a_directory"),
        ("/dev/zero", 400, "bad_request"),
        ("relative", 400, "bad_request"),
    ] {
        for op in ["download", "read-file"] {
            let (found, error) = client.json(Method::GET, &format!("/{op}?path={path}"), b"").await;
            assert_eq!((found, error["code"].as_str()), (status, Some(code)), "{op} {path}: {error}");
        }
    }
    assert_eq!(client.json(Method::GET, "/nothing", b"").await.0, 404);
}

#[tokio::test]
async fn an_upload_that_is_cut_leaves_nothing() {
    let agent = Agent::start();
    let client = agent.connect().await;
    std::fs::create_dir(agent.path("dir")).unwrap();
    std::fs::write(agent.path("dir/kept"), "old").unwrap();
    for name in ["kept", "new", "below/new"] {
        let target = format!("/files?path={}", agent.path(&format!("dir/{name}")));
        let (answer, mut stream) = client.begin(Method::PUT, &target, &[]).await;
        send_all(&mut stream, Bytes::from(vec![1; 1 << 20])).await;
        let is_begun = || names(&agent.folder.path().join("dir")).len() > 1;
        wait_for("file beside the target", is_begun).await;
        stream.send_reset(h2::Reason::CANCEL);
        drop(answer);
        wait_for("end of the file beside", || names(&agent.folder.path().join("dir")) == ["kept"]).await;
    }
    assert_eq!(std::fs::read(agent.path("dir/kept")).unwrap(), b"old");
}

#[tokio::test]
async fn windows_of_a_file_are_read() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let path = agent.path("text");
    std::fs::write(&path, "0123456789\u{e9}\"\\\n").unwrap();
    let read = async |rest: &str| client.json(Method::GET, &format!("/read-file?path={path}{rest}"), b"").await;
    let (status, whole) = read("").await;
    let wanted = serde_json::json!({
        "content": "0123456789\u{e9}\"\\\n", "size": 15, "total_size": 15, "offset": 0, "truncated": false
    });
    assert_eq!((status, whole), (200, wanted));
    let (_, tail) = read("&offset=-4&length=10485760").await;
    let wanted = serde_json::json!({
        "content": "\u{fffd}\"\\\n", "size": 4, "total_size": 15, "offset": 11, "truncated": true
    });
    assert_eq!(tail, wanted);
    assert_eq!(read("&offset=2&length=3").await.1["content"], "234");
    assert_eq!(read("&offset=99").await.1["size"], 0);
    assert_eq!(read("&offset=x").await.0, 400);
    let (status, proc) = client.json(Method::GET, "/read-file?path=/proc/self/comm", b"").await;
    assert_eq!((status, proc["content"].as_str()), (200, Some("warren-guest\n")));
}

#[tokio::test]
async fn a_long_file_needs_a_window() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let path = agent.path("log");
    let data: String = (0..).map(|n| format!("line {n}\n")).take(1_800_000).collect();
    std::fs::write(&path, &data).unwrap();
    let (status, error) = client.json(Method::GET, &format!("/read-file?path={path}"), b"").await;
    assert_eq!((status, error["code"].as_str()), (413, Some("too_large")));
    let target = format!("/read-file?path={path}&offset=-10485760&length=10485760");
    let (status, tail) = client.json(Method::GET, &target, b"").await;
    assert_eq!((status, tail["size"].as_u64(), tail["truncated"].as_bool()), (200, Some(10 << 20), Some(true)));
    assert!(tail["content"].as_str().unwrap() == &data[data.len() - (10 << 20)..]);
    agent.check_memory();
}

#[tokio::test]
async fn many_uploads_at_once_need_little_memory() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let data = Bytes::from(vec![7; 8 << 20]);
    let uploads: Vec<_> = (0..20)
        .map(|n| {
            let target = format!("/files?path={}", agent.path(&format!("{n}")));
            let (client, data) = (&client, &data);
            async move { client.json(Method::PUT, &target, data).await.0 }
        })
        .collect();
    for upload in uploads {
        assert_eq!(tokio::time::timeout(SOON, upload).await.unwrap(), 200);
    }
    agent.check_memory();
}

#[tokio::test]
async fn status_and_jobs_answer() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let (status, body) = client.json(Method::GET, "/warren/status", b"").await;
    assert_eq!(status, 200);
    let parsed: warren_proto::guest::GuestStatus = serde_json::from_value(body).unwrap();
    assert!(parsed.agent_rss_kib > 0 && parsed.start_command_exit.is_none());
    let (status, body) = client.json(Method::POST, "/warren/jobs", br#"{"job_ids":["00c0ffee"]}"#).await;
    assert_eq!((status, body), (200, serde_json::json!({"jobs": [{"state": "not_found"}]})));
    assert_eq!(client.json(Method::POST, "/warren/jobs", b"{").await.0, 400);
    assert_eq!(client.json(Method::POST, "/warren/shutdown", br#"{"grace_ms":1}"#).await, (200, serde_json::json!({})));
}
