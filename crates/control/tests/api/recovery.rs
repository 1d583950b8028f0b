use crate::server::{Server, id, text, until};
use serde_json::json;
use warren_model::{SandboxId, Status};
use warren_proto::node::NodeApi;
use warren_testkit::node::SimNode;

#[tokio::test]
async fn a_restart_finds_what_runs_what_is_lost_and_what_should_be_gone() {
    let server = Server::start(SimNode::default()).await;
    let [runs, lost, ended, deleted] = [
        server.create(json!({})).await,
        server.create(json!({})).await,
        server.create(json!({})).await,
        server.create(json!({})).await,
    ];
    // The intent to delete is stored, and the server dies before the node has followed.
    server.node.fail_terminates(1);
    server.delete(&text(&deleted["id"])).await.ok();
    server.app.shutdown().await;
    server.node.set_mute(true);
    server.node.lose(&id(&lost));
    server.node.end(&id(&ended), warren_model::EndReason::VmmDied, "killed meanwhile");
    // What the store never heard of.
    let spec = server.node.spec(&id(&runs)).unwrap();
    let orphan = SandboxId::from_bits(77);
    server.node.create(orphan.clone(), spec).await.unwrap();
    server.node.set_mute(false);

    let server = server.restart().await;
    server.until_status(&text(&ended["id"]), "ERROR").await;
    let shown = server.until_status(&text(&lost["id"]), "ERROR").await;
    assert_eq!((&shown["errorType"], &shown["infra_fault"]), (&json!("NODE_LOST"), &json!(true)));
    until("only what should run does", || async { (server.node.live() == [id(&runs)]).then_some(()) }).await;
    assert_eq!(server.sandbox(&text(&runs["id"])).await["status"], "RUNNING");
    assert_eq!(server.sandbox(&text(&deleted["id"])).await["status"], "TERMINATED");
}

#[tokio::test]
async fn a_queue_survives_a_restart() {
    let server = Server::start(SimNode::default()).await;
    server.node.set_capacity(Some(0));
    let made = server.create(json!({"secrets": {"A": "kept"}})).await;
    assert_eq!(made["status"], "PENDING");
    let server = server.restart().await;
    server.node.set_capacity(None);
    server.until_status(&text(&made["id"]), "RUNNING").await;
    assert_eq!(server.node.spec(&id(&made)).unwrap().secrets["A"], "kept");
}

#[tokio::test]
async fn observations_that_never_came_are_made_up_for() {
    let server = Server::start(SimNode::default()).await;
    server.node.set_mute(true);
    let made = server.create(json!({})).await;
    server.until_status(&text(&made["id"]), "RUNNING").await;
    server.node.end(&id(&made), warren_model::EndReason::GuestDied, "unheard");
    let shown = server.until_status(&text(&made["id"]), "ERROR").await;
    assert_eq!(shown["errorType"], "GUEST_DIED");
}

#[tokio::test]
async fn the_node_is_as_the_store_after_a_storm() {
    let server = Server::start(SimNode::default()).await;
    let mut made = Vec::new();
    for n in 0..30 {
        server.node.set_mute(n % 3 == 0);
        server.node.fail_terminates(u64::from(n % 4 == 0));
        let id = text(&server.create(json!({"labels": ["storm"]})).await["id"]);
        if n % 2 == 0 {
            server.delete(&id).await.ok();
        } else {
            made.push(id);
        }
    }
    server.node.fail_terminates(0);
    until("all that should run does, and nothing else", || async {
        let mut live: Vec<_> = server.node.live().iter().map(ToString::to_string).collect();
        live.sort();
        let mut wanted = made.clone();
        wanted.sort();
        (live == wanted).then_some(())
    })
    .await;
    for id in &made {
        server.until_status(id, Status::Running.as_str()).await;
    }
}
