//! Pulls from a registry on loopback.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};
use support::image::{Packing, TestImage, digest};
use support::registry::{Behaviour, Registry};
use support::{Have as _, TarFile, fsck, root_tar};
use warren_image::{Config, RegistryConfig, Store};
use warren_model::Login;

/// `user:secret`.
const LOGIN: &str = "dXNlcjpzZWNyZXQ=";
/// An answer that tells what is wrong must come within this.
const SOON: Duration = Duration::from_secs(15);

fn image(content: &str) -> TestImage {
    let noise: Vec<u8> = (0..40_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let base = vec![TarFile::dir("etc/"), TarFile::file("etc/noise", &noise)];
    TestImage::new(&[(base, Packing::Gzip), (vec![TarFile::file("content", content.as_bytes())], Packing::Zstd)])
}

fn open(dir: &Path, registry: RegistryConfig) -> Store {
    let config = Config { registry, tag_fresh: Duration::ZERO, ..Config::default() };
    Store::open(&dir.join("images"), config).unwrap()
}

fn login(host: &str) -> RegistryConfig {
    let credential = Login { user: "user".to_owned(), password: "secret".to_owned() };
    RegistryConfig { credentials: [(host.to_owned(), credential)].into(), ..Default::default() }
}

async fn code(store: &Store, reference: &str) -> &'static str {
    let started = Instant::now();
    let code = store.have(reference).await.unwrap_err().code;
    assert!(started.elapsed() < SOON, "{reference} took {:?}", started.elapsed());
    code
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_at_once_cause_one_pull() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour::default());
    let image = image("one");
    registry.push("team/app", "1", &image);
    registry.push("team/app", "same", &image);
    let store = open(dir.path(), RegistryConfig::default());
    let name = format!("{}/team/app", registry.address);
    let asks = (0..40).map(|i| {
        let (store, name) = (store.clone(), format!("{name}:{}", if i % 2 == 0 { "1" } else { "same" }));
        tokio::spawn(async move { store.have(&name).await })
    });
    let asks: Vec<_> = asks.collect();
    let mut images = Vec::new();
    for ask in asks {
        images.push(ask.await.unwrap().unwrap());
    }
    assert!(images.iter().all(|i| i.record.digest == digest(&image.manifest)));
    for layer in &image.layers {
        assert_eq!(registry.times(&format!("GET /v2/team/app/blobs/{layer}")), 1);
    }
    // Two tags ask twice what they mean, and once for what both mean.
    let manifest = digest(&image.manifest);
    assert_eq!(registry.times(&format!("GET /v2/team/app/manifests/{manifest}")), 1);
    assert_eq!(registry.times(&format!("GET /v2/team/app/blobs/{}", image.config)), 1);
    assert_eq!(
        (registry.times("HEAD /v2/team/app/manifests/1"), registry.times("GET /v2/team/app/manifests/1")),
        (1, 0)
    );
    assert_eq!(store.list().len(), 2);
    assert!(store.builds().is_empty());
    fsck(&images[0].disk);
    assert_eq!(std::fs::read_dir(dir.path().join("images/tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_tag_is_asked_for_again_and_a_digest_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour::default());
    let (old, new) = (image("old"), image("new"));
    registry.push("app", "1", &old);
    let store = open(dir.path(), RegistryConfig::default());
    let name = format!("{}/app:1", registry.address);
    let first = store.have(&name).await.unwrap();
    let before = registry.asked();
    assert_eq!(store.have(&name).await.unwrap().record.digest, first.record.digest);
    assert_eq!(registry.asked(), before + 1, "one HEAD tells that nothing changed");
    registry.push("app", "1", &new);
    let second = store.have(&name).await.unwrap();
    assert_eq!(second.record.digest, digest(&new.manifest));
    // The old one is kept by its lease alone.
    let records = || std::fs::read_dir(dir.path().join("images/records")).unwrap().count();
    assert_eq!(records(), 2);
    drop(first);
    assert_eq!(records(), 1);
    let by_digest = format!("{}/app@{}", registry.address, digest(&new.manifest));
    let before = registry.asked();
    assert_eq!(store.have(&by_digest).await.unwrap().disk.offset(), second.disk.offset());
    assert_eq!(registry.asked(), before);
    // A name that a digest of an index was pulled by needs no second look either.
    registry.put("app", "manifests/multi", new.index(&[]).to_string().into_bytes());
    let index = new.index(&[("linux", "arm64"), ("unknown", "unknown")]).to_string().into_bytes();
    let by_index = format!("{}/app@{}", registry.address, digest(&index));
    registry.put("app", &format!("manifests/{}", digest(&index)), index);
    assert_eq!(store.have(&by_index).await.unwrap().disk.offset(), second.disk.offset());
    let before = registry.asked();
    assert_eq!(store.have(&by_index).await.unwrap().disk.offset(), second.disk.offset());
    assert_eq!(registry.asked(), before);
}

#[tokio::test]
async fn each_failure_has_its_code_and_comes_soon() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour::default());
    let host = &registry.address;
    registry.push("app", "1", &image("x"));
    let arm = TestImage::with_architecture(&[(vec![], Packing::Gzip)], "arm64");
    registry.push("app", "arm", &arm);
    let mut bad = image("bad");
    bad.blobs.insert(bad.layers[1].clone(), b"not what was pushed".to_vec());
    registry.push("app", "bad", &bad);
    let index = serde_json::json!({"manifests": [{"digest": digest(b"x"), "size": 1, "platform": {"os": "linux", "architecture": "s390x"}}]});
    registry.put("app", "manifests/s390x", index.to_string().into_bytes());
    registry.put("app", "manifests/html", b"<html>".to_vec());
    registry.put("app", "manifests/large", vec![b' '; 5 << 20]);
    let store = open(dir.path(), RegistryConfig::default());
    for (tag, expected) in [
        ("missing", "not_found"),
        ("arm", "wrong_architecture"),
        ("s390x", "wrong_architecture"),
        ("bad", "digest_mismatch"),
        ("html", "bad_content"),
        ("large", "bad_content"),
    ] {
        assert_eq!(code(&store, &format!("{host}/app:{tag}")).await, expected, "{tag}");
    }
    assert_eq!(code(&store, "127.0.0.1:1/app:1").await, "registry_unreachable");
    assert_eq!(code(&store, "registry.invalid/app:1").await, "registry_unreachable");
    assert_eq!(code(&store, "../app").await, "bad_reference");
    for sub in ["manifests", "records", "names", "tmp"] {
        assert_eq!(std::fs::read_dir(dir.path().join("images").join(sub)).unwrap().count(), 0, "{sub}");
    }
}

#[tokio::test]
async fn logins_by_token_and_by_password() {
    for basic in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::start(Behaviour { login: Some(LOGIN.to_owned()), basic, ..Default::default() });
        registry.push("app", "1", &image("x"));
        let name = format!("{}/app:1", registry.address);
        let store = open(dir.path(), RegistryConfig::default());
        assert_eq!(code(&store, &name).await, "access_denied");
        drop(store);
        let mut wrong = login(&registry.address);
        wrong.credentials.get_mut(&registry.address).unwrap().password = "wrong".to_owned();
        let store = open(dir.path(), wrong);
        let error = store.have(&name).await.unwrap_err();
        assert_eq!(error.code, "access_denied");
        assert!(!error.message.contains("wrong"), "{error}");
        drop(store);
        let store = open(dir.path(), login(&registry.address));
        store.have(&name).await.unwrap();
    }
}

#[tokio::test]
async fn busy_registries_are_asked_again_but_not_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour { busy: AtomicUsize::new(3), ..Default::default() });
    registry.push("app", "1", &image("x"));
    let config = RegistryConfig { rate_wait_max: Duration::from_secs(2), ..Default::default() };
    let store = open(dir.path(), config);
    store.have(&format!("{}/app:1", registry.address)).await.unwrap();
    registry.behaviour.busy.store(1000, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(code(&store, &format!("{}/app:2", registry.address)).await, "rate_limited");
}

#[tokio::test]
async fn a_broken_transfer_goes_on() {
    for no_ranges in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::start(Behaviour { breaks: AtomicBool::new(true), no_ranges, ..Default::default() });
        let image = image("x");
        registry.push("app", "1", &image);
        let store = open(dir.path(), RegistryConfig::default());
        let made = store.have(&format!("{}/app:1", registry.address)).await.unwrap();
        fsck(&made.disk);
        assert_eq!(registry.times(&format!("GET /v2/app/blobs/{}", image.layers[0])), 2);
    }
}

#[tokio::test]
async fn mirrors_come_before_the_registry() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour::default());
    registry.push("library/debian", "12", &image("x"));
    let mirrors = vec!["http://127.0.0.1:1".to_owned(), format!("http://{}", registry.address)];
    let config = RegistryConfig { mirrors: [("docker.io".to_owned(), mirrors)].into(), ..Default::default() };
    let store = open(dir.path(), config);
    let made = store.have("debian:12").await.unwrap();
    assert_eq!(made.record.reference, "debian:12");
}

#[tokio::test]
async fn a_registry_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour::default());
    registry.push("app", "1", &image("x"));
    let name = format!("{}/app:1", registry.address);
    let store = open(dir.path(), RegistryConfig::default());
    store.have(&name).await.unwrap();
    drop(registry);
    assert_eq!(code(&store, &name).await, "registry_unreachable");
    drop(store);
    let config = Config { offline_ok: true, ..Config::default() };
    let store = Store::open(&dir.path().join("images"), config).unwrap();
    store.have(&name).await.unwrap();
    // An imported name was never the registry's.
    let tar = dir.path().join("root.tar");
    std::fs::write(&tar, root_tar(&[TarFile::file("a", b"a")])).unwrap();
    store.import(tar, &name).await.unwrap();
    drop(store);
    let store = open(dir.path(), RegistryConfig::default());
    store.have(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_is_seen_and_outlives_its_caller() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour { busy: AtomicUsize::new(2), ..Default::default() });
    registry.push("app", "1", &image("x"));
    let store = open(dir.path(), RegistryConfig::default());
    let name = format!("{}/app:1", registry.address);
    // The caller goes away while the registry is busy.
    let asked = tokio::time::timeout(Duration::from_millis(20), store.have(&name)).await;
    assert!(asked.is_err());
    let build = store.build_for(&name).unwrap();
    assert_eq!((build.reference.as_str(), build.step.as_str()), (name.as_str(), "resolving"));
    let deadline = Instant::now() + SOON;
    while store.get(&name).is_none() {
        assert!(Instant::now() < deadline, "the build did not go on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Content that no chunk of another image has.
fn bulky(seed: u32) -> TestImage {
    let mut state = seed;
    let mut step = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let content: Vec<u8> = (0..1 << 20).map(|_| step()).collect();
    TestImage::new(&[(vec![TarFile::file("content", &content)], Packing::Gzip)])
}

#[tokio::test]
async fn the_least_recently_used_go_and_never_what_somebody_needs() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour::default());
    for (tag, seed) in [("held", 1), ("old", 2), ("new", 3)] {
        registry.push("app", tag, &bulky(seed));
    }
    let name = |tag: &str| format!("{}/app:{tag}", registry.address);
    let tar = dir.path().join("root.tar");
    std::fs::write(&tar, root_tar(&[TarFile::file("a", &[5; 100_000])])).unwrap();
    let store = open(dir.path(), RegistryConfig::default());
    let held = store.have(&name("held")).await.unwrap();
    store.import(tar, "mine:1").await.unwrap();
    for tag in ["old", "new"] {
        store.have(&name(tag)).await.unwrap();
    }
    // Uses within a minute count as one, so the files' times are set.
    let hex = |tag: &str| store.get(&name(tag)).unwrap().digest.replace("sha256:", "");
    let record = dir.path().join("images/records").join(format!("{}.json", hex("old")));
    drop(store);
    let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    std::fs::File::options().write(true).open(record).unwrap().set_modified(hour_ago).unwrap();
    let store = open(dir.path(), RegistryConfig::default());
    let held = store.lease(&held.record.digest).unwrap();

    assert!(store.gc(None, true).await.unwrap().collected.is_empty(), "the quota is far away");
    let before = store.gc(Some(u64::MAX), true).await.unwrap().stored_bytes;
    let dry = store.gc(Some(0), true).await.unwrap();
    let names: Vec<_> = dry.collected.iter().map(|image| image.references.clone()).collect();
    assert_eq!(names, [[name("old")], [name("new")]]);
    assert!(dry.collected.iter().all(|image| image.bytes >= 1 << 20));
    assert_eq!((dry.stored_bytes, store.list().len()), (before, 4), "nothing went");

    let done = store.gc(Some(before - 1), false).await.unwrap();
    assert_eq!(done.collected, dry.collected[..1]);
    assert_eq!(done.stored_bytes, before - dry.collected[0].bytes);
    assert_eq!(store.gc(Some(0), false).await.unwrap().collected, dry.collected[1..]);
    let left: Vec<_> = store.list().into_iter().map(|record| record.reference).collect();
    assert_eq!(left, [name("held"), "mine:1".to_owned()]);
    fsck(&held.disk);
    // What went comes again.
    fsck(&store.have(&name("old")).await.unwrap().disk);
}

#[tokio::test]
async fn a_quota_is_kept_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour::default());
    let config = Config { quota_bytes: Some(5 << 20), ..Config::default() };
    let store = Store::open(&dir.path().join("images"), config).unwrap();
    for seed in 0..8 {
        registry.push("app", &seed.to_string(), &bulky(seed));
        store.have(&format!("{}/app:{seed}", registry.address)).await.unwrap();
    }
    let now = store.gc(Some(u64::MAX), true).await.unwrap();
    assert!((3 << 20..=5 << 20).contains(&now.stored_bytes), "{now:?}");
    assert!(store.get(&format!("{}/app:7", registry.address)).is_some(), "the newest stays");
}
