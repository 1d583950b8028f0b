use crate::server::{Server, id, text};
use serde_json::{Value, json};
use warren_model::EndReason;
use warren_testkit::node::{Life, SimNode};

#[tokio::test]
async fn every_end_has_its_status_type_and_fault() {
    let server = Server::start(SimNode::default()).await;
    let ends = [
        (EndReason::Timeout, "TIMEOUT", "TIMEOUT", false),
        (EndReason::Idle, "TERMINATED", "IDLE_TIMEOUT", false),
        (EndReason::StartFailed, "ERROR", "START_FAILED", true),
        (EndReason::VmmDied, "ERROR", "VMM_DIED", true),
        (EndReason::GuestDied, "ERROR", "GUEST_DIED", false),
        (EndReason::PoweredOff, "TERMINATED", "POWERED_OFF", false),
        (EndReason::ImageUnusable, "ERROR", "IMAGE_UNUSABLE", false),
        (EndReason::VolumeUnusable, "ERROR", "VOLUME_UNUSABLE", false),
        (EndReason::OutOfMemory, "ERROR", "OOM_KILLED", false),
        (EndReason::NodeLost, "ERROR", "NODE_LOST", true),
    ];
    for (reason, status, kind, fault) in ends {
        let made = server.create(json!({})).await;
        server.node.end(&id(&made), reason, "as the test wants it");
        let made = text(&made["id"]);
        let shown = server.until_status(&made, status).await;
        let context = server.get(&format!("/api/v1/sandbox/{made}/error-context")).await.ok();
        for answer in [&shown, &context] {
            assert_eq!((&answer["status"], &answer["errorType"]), (&json!(status), &json!(kind)), "{reason:?}");
            assert_eq!(
                (&answer["errorMessage"], &answer["infra_fault"]),
                (&json!("as the test wants it"), &json!(fault))
            );
        }
        let batch = server.post("/api/v1/sandbox/status:batchGet", json!({"sandbox_ids": [made]})).await.ok();
        let expected = json!([{
            "sandbox_id": made, "status": status, "error_type": kind, "error_message": "as the test wants it",
            "pending_image_build_id": null
        }]);
        assert_eq!(batch["statuses"], expected);
        // A delete afterwards changes nothing of it.
        assert_eq!(server.delete(&made).await.ok()["status"], status);
        assert_eq!(server.sandbox(&made).await["errorType"], kind);
    }
}

#[tokio::test]
async fn an_image_that_cannot_be_had() {
    let fail = Some((EndReason::ImagePullFailed, "registry.test/no/such: not found".to_owned()));
    let server = Server::start(SimNode::new(move |_| Life { fail: fail.clone(), ..Life::default() })).await;
    let made = server.create(json!({})).await;
    assert_eq!((&made["status"], &made["errorType"]), (&json!("ERROR"), &json!("IMAGE_PULL_FAILED")));
    assert_eq!(made["startedAt"], Value::Null);
}

#[tokio::test]
async fn an_oom_kill_shows_while_the_sandbox_goes_on() {
    let server = Server::start(SimNode::default()).await;
    let made = server.create(json!({})).await;
    server.node.oom(&id(&made), "killed python (pid 7)");
    let made = text(&made["id"]);
    let context = crate::server::until("the kill shows", || async {
        let context = server.get(&format!("/api/v1/sandbox/{made}/error-context")).await.ok();
        (context["errorType"] == "OOM_KILLED").then_some(context)
    })
    .await;
    assert_eq!((&context["status"], &context["errorMessage"]), (&json!("RUNNING"), &json!("killed python (pid 7)")));
}
