use crate::server::{Server, text};
use serde_json::{Value, json};
use warren_testkit::node::SimNode;

async fn ids(server: &Server, query: &str) -> Vec<String> {
    let list = server.get(&format!("/api/v1/sandbox?{query}")).await.ok();
    list["sandboxes"].as_array().unwrap().iter().map(|sandbox| text(&sandbox["id"])).collect()
}

#[tokio::test]
async fn pages_labels_status_and_activity() {
    let server = Server::start(SimNode::default()).await;
    let mut made = Vec::new();
    for n in 0..5 {
        made.push(text(&server.create(json!({"labels": ["page", format!("n{n}"), "a b&c"]})).await["id"]));
    }
    server.delete(&made[0]).await.ok();
    let page = |n| format!("labels=page&page={n}&per_page=2");
    for (n, len, next) in [(1, 2, true), (2, 2, true), (3, 1, false), (4, 0, false)] {
        let list = server.get(&format!("/api/v1/sandbox?{}", page(n))).await.ok();
        assert_eq!(list["sandboxes"].as_array().unwrap().len(), len);
        let frame = json!([list["total"], list["page"], list["perPage"], list["hasNext"]]);
        assert_eq!(frame, json!([5, n, 2, next]));
    }
    assert_eq!(ids(&server, "labels=page&labels=n3").await, [made[3].clone()]);
    assert_eq!(ids(&server, "labels=n3&labels=n4").await, Vec::<String>::new());
    assert_eq!(ids(&server, "labels=a%20b%26c&labels=n1").await, [made[1].clone()]);
    // is_active=false hides nothing; true hides what has ended; a status alone shows all that have it.
    assert_eq!(ids(&server, "is_active=false").await.len(), 5);
    assert_eq!(ids(&server, "is_active=true").await.len(), 4);
    assert_eq!(ids(&server, "is_active=false&status=RUNNING").await.len(), 4);
    assert_eq!(ids(&server, "is_active=false&status=TERMINATED").await, [made[0].clone()]);
    for bad in ["page=0", "page=x", "per_page=-1", "status=GONE", "is_active=maybe"] {
        assert_eq!(server.get(&format!("/api/v1/sandbox?{bad}")).await.refusal(), (422, "invalid_request"), "{bad}");
    }
    let most = server.get("/api/v1/sandbox?per_page=100000").await.ok();
    assert_eq!(most["perPage"], 1000);
}

#[tokio::test]
async fn newest_first() {
    let server = Server::start(SimNode::default()).await;
    let mut made: Vec<Value> = Vec::new();
    for _ in 0..3 {
        made.insert(0, server.create(json!({})).await);
    }
    let times: Vec<_> = made.iter().map(|sandbox| text(&sandbox["createdAt"])).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert_eq!(ids(&server, "").await.len(), 3);
}
