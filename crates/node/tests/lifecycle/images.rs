//! Many creates of images that nobody has asked for before: how often the registry is asked, and what is seen meanwhile.

use crate::world::{assert_clean, id, open, spec, until};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use warren_model::{EndReason, SandboxSpec, Status};
use warren_node::SharedNode;
use warren_proto::node::NodeApi;
use warren_testkit::registry::Registry;

/// Sandboxes that are asked for at once.
const CREATES: u128 = 200;
/// Longest wait until all that were asked for at once run.
const WAVE_WAIT: Duration = Duration::from_secs(600);

fn layer(name: &str, len: usize) -> bytes::Bytes {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(len as u64);
    header.set_mode(0o644);
    let content: Vec<u8> = name.bytes().cycle().take(len).collect();
    archive.append_data(&mut header, name, content.as_slice()).unwrap();
    archive.into_inner().unwrap().into()
}

async fn all_run(node: &SharedNode, images: &[String]) {
    for n in 0..CREATES {
        let image = images[n as usize % images.len()].clone();
        node.create(id(n), SandboxSpec { image, ..spec() }).await.unwrap();
    }
    for n in 0..CREATES {
        let seen = until(node, &id(n), |o| o.status == Status::Running || o.end.is_some()).await;
        assert_eq!(seen.status, Status::Running, "{:?}", seen.end);
    }
}

async fn end_all(node: &SharedNode, dir: &Path) {
    let ends = (0..CREATES).map(|n| {
        let node = node.clone();
        async move { node.terminate(&id(n), EndReason::Deleted, "done").await.unwrap() }
    });
    futures_util::future::join_all(ends).await;
    assert_clean(dir);
}

pub(crate) async fn one_unseen_image_is_pulled_and_converted_once() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start().await.unwrap();
    registry.set_delay(Duration::from_millis(400));
    let image = registry.push("app", "1", &[layer("base", 1 << 20), layer("top", 1000)]);
    let node = open(dir.path()).await;
    let mut observations = node.observe();
    all_run(&node, &[image]).await;
    assert_eq!(registry.fetched().values().collect::<BTreeSet<_>>(), BTreeSet::from([&1]), "{:?}", registry.fetched());
    assert_eq!(registry.asked("manifests/1"), 1);
    assert_eq!(std::fs::read_dir(dir.path().join("images/manifests")).unwrap().count(), 1);
    let mut builds = BTreeSet::new();
    let mut waited = BTreeSet::new();
    while let Ok(seen) = observations.try_recv() {
        waited.extend(seen.image_build.is_some().then(|| seen.id.to_string()));
        builds.extend(seen.image_build.map(|build| build.id));
    }
    assert_eq!((builds.len(), waited.len()), (1, CREATES as usize), "one build, which all wait for and see");
    end_all(&node, dir.path()).await;
}

/// Creates over tags that nobody has asked for before, so many at once: few, or with `WARREN_LOAD` set as many as a
/// large run makes.
struct Sweep {
    creates: usize,
    tags: usize,
    at_once: usize,
}

impl Sweep {
    fn asked_for() -> Self {
        match std::env::var_os("WARREN_LOAD") {
            Some(_) => Self { creates: 5000, tags: 500, at_once: 250 },
            None => Self { creates: 300, tags: 60, at_once: 150 },
        }
    }
}

pub(crate) async fn many_tags_cause_one_request_a_digest() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start().await.unwrap();
    let Sweep { creates, tags, at_once } = Sweep::asked_for();
    let base = layer("base", 2 << 20);
    let image = |n: usize| {
        registry.push(&format!("sweep-{}", n % 10), &format!("v{n}"), &[base.clone(), layer(&n.to_string(), 99)])
    };
    let images: Vec<String> = (0..tags).map(image).collect();
    let node = open(dir.path()).await;
    let began = Instant::now();
    let all: Vec<usize> = (0..creates).collect();
    for wave in all.chunks(at_once) {
        for n in wave {
            let image = images[n % tags].clone();
            node.create(id(*n as u128), SandboxSpec { image, ..spec() }).await.unwrap();
        }
        until_all_run(&node, wave.len()).await;
        end(&node, wave).await;
    }
    println!("{creates} creates over {tags} tags in {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(registry.fetched().len(), 1 + tags * 3, "the base, and each tag's layer, config and manifest");
    assert!(registry.fetched().values().all(|count| *count == 1), "{:?}", registry.fetched());
    assert_eq!(registry.asked("HEAD "), tags, "each tag is asked about once");
    assert_clean(dir.path());
}

async fn until_all_run(node: &SharedNode, count: usize) {
    let wait = async {
        loop {
            let seen = node.list().await;
            assert!(seen.iter().all(|o| o.end.is_none()), "{:?}", seen.iter().find(|o| o.end.is_some()));
            if seen.iter().filter(|o| o.status == Status::Running).count() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAVE_WAIT, wait).await.expect("not all sandboxes run");
}

async fn end(node: &SharedNode, wave: &[usize]) {
    let ends = wave.iter().map(|n| {
        let (node, id) = (node.clone(), id(*n as u128));
        async move {
            node.terminate(&id, EndReason::Deleted, "done").await.unwrap();
            node.forget(&id).await;
        }
    });
    futures_util::future::join_all(ends).await;
}
