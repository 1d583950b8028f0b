use crate::server::{Server, id, text};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use warren_proto::guest::JobState;
use warren_testkit::node::{Life, SimNode};

const STATUS: &str = "/api/v1/sandbox/status:batchGet";
const JOBS: &str = "/api/v1/sandbox/background-jobs/status:batchGet";

#[tokio::test]
async fn every_id_is_in_one_of_the_lists() {
    let server = Server::start(SimNode::default()).await;
    let own = text(&server.create(json!({})).await["id"]);
    let (_, key) = server.user("other").await;
    let ids = json!({"sandbox_ids": ["snosuchsandbox", own, "Not An Id"]});
    let answer = server.post(STATUS, ids.clone()).await.ok();
    assert_eq!(answer["statuses"].as_array().unwrap().len(), 1);
    let errors: Vec<_> = answer["errors"].as_array().unwrap().iter().map(|e| (&e["sandbox_id"], &e["code"])).collect();
    assert_eq!(errors, [(&json!("snosuchsandbox"), &json!("NOT_FOUND")), (&json!("Not An Id"), &json!("NOT_FOUND"))]);
    let theirs = server.call_as(&key, http::Method::POST, STATUS, ids).await.ok();
    assert_eq!((&theirs["statuses"], &theirs["errors"][1]["code"]), (&json!([]), &json!("FORBIDDEN")));
    for bad in [json!([]), json!([own, own]), json!(vec!["a"; 101]), json!("a"), Value::Null] {
        assert_eq!(server.post(STATUS, json!({"sandbox_ids": bad})).await.status, 422, "{bad}");
    }
}

#[tokio::test]
async fn it_is_held_while_nothing_has_happened() {
    let start = Duration::from_millis(2500);
    let server = Server::start(SimNode::new(move |_| Life { start, ..Life::default() })).await;
    let begun = Instant::now();
    let made = text(&server.create(json!({})).await["id"]);
    let mut looks = 0;
    loop {
        looks += 1;
        let answer = server.post(STATUS, json!({"sandbox_ids": [made]})).await.ok();
        if answer["statuses"][0]["status"] == "RUNNING" {
            break;
        }
    }
    // The last look ended with the change, not with its own time.
    assert!((1..=4).contains(&looks), "{looks}");
    assert!(begun.elapsed() < start + Duration::from_millis(1500), "{:?}", begun.elapsed());
    let begun = Instant::now();
    server.post(STATUS, json!({"sandbox_ids": [made]})).await.ok();
    assert!(begun.elapsed() < Duration::from_millis(400), "a running one is not waited for");
}

#[tokio::test]
async fn background_jobs_of_many_sandboxes_in_order() {
    let server = Server::start(SimNode::default()).await;
    let (one, two) = (server.create(json!({})).await, server.create(json!({})).await);
    server.node.put_job(&id(&one), "0000000a", JobState::Completed { exit_code: 3 });
    server.node.put_job(&id(&one), "0000000b", JobState::Running);
    server.node.put_job(&id(&two), "0000000c", JobState::Lost);
    let gone = server.create(json!({})).await;
    server.delete(&text(&gone["id"])).await.ok();
    let job = |sandbox: &Value, job: &str| json!({"sandbox_id": sandbox, "job_id": job});
    let jobs = [
        job(&two["id"], "0000000c"),
        job(&one["id"], "0000000b"),
        job(&one["id"], "0000000a"),
        job(&one["id"], "0000000d"),
        job(&gone["id"], "0000000a"),
        job(&json!("snosuchsandbox"), "0000000a"),
    ];
    let answer = server.post(JOBS, json!({"jobs": jobs})).await.ok();
    let expected = json!([
        {"sandbox_id": one["id"], "job_id": "0000000b", "completed": false},
        {"sandbox_id": one["id"], "job_id": "0000000a", "completed": true, "exit_code": 3},
    ]);
    assert_eq!(answer["statuses"], expected);
    let codes: Vec<_> = answer["errors"].as_array().unwrap().iter().map(|error| text(&error["code"])).collect();
    assert_eq!(codes, ["RUNTIME_ERROR", "NOT_FOUND", "NOT_RUNNING", "NOT_FOUND"]);
    for bad in [json!([]), json!([job(&one["id"], "xyz")])] {
        assert_eq!(server.post(JOBS, json!({"jobs": bad})).await.status, 422, "{bad}");
    }
}
