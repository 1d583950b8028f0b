//! Who may have what is in the store, and how often a registry is asked.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::time::Duration;
use support::image::{Packing, TestImage, digest};
use support::registry::{Behaviour, Registry};
use support::{Have as _, TarFile};
use warren_image::{Ask, Config, Store};
use warren_model::{ImageAccess, Login};

/// `user:secret`.
const LOGIN: &str = "dXNlcjpzZWNyZXQ=";

fn image(content: &str) -> TestImage {
    TestImage::new(&[(vec![TarFile::file("content", content.as_bytes())], Packing::Gzip)])
}

fn open(dir: &Path, offline_ok: bool) -> Store {
    let config = Config { offline_ok, tag_fresh: Duration::from_secs(3600), ..Config::default() };
    Store::open(&dir.join("images"), config).unwrap()
}

fn access(owner: &str, password: &str) -> ImageAccess {
    let login = Login { user: "user".to_owned(), password: password.to_owned() };
    ImageAccess { owner: owner.to_owned(), login: Some(login) }
}

async fn code(store: &Store, reference: &str, access: &ImageAccess) -> &'static str {
    store.ensure(reference, access, Ask::IfStale).await.map_or_else(|e| e.code, |_| "had")
}

fn private() -> Behaviour {
    Behaviour { login: Some(LOGIN.to_owned()), basic: true, ..Default::default() }
}

#[tokio::test]
async fn a_saved_login_gives_nothing_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(private());
    let image = image("secret");
    registry.push("app", "1", &image);
    let (alice, bob, nobody) = (access("user:alice", "secret"), access("user:bob", "guess"), ImageAccess::default());
    let name = format!("{}/app:1", registry.address);
    let by_digest = format!("{}/app@{}", registry.address, digest(&image.manifest));
    let store = open(dir.path(), false);
    let had = store.ensure(&name, &alice, Ask::IfStale).await.unwrap();
    assert!(had.record.private && store.list()[0].private);
    drop(had);
    drop(store);
    // A new start remembers whose it is.
    let store = open(dir.path(), false);
    for reference in [&name, &by_digest] {
        for _ in 0..2 {
            assert_eq!(code(&store, reference, &bob).await, "access_denied", "{reference}");
            assert_eq!(code(&store, reference, &nobody).await, "access_denied", "{reference}");
            assert_eq!(store.check(reference, &bob).await.unwrap_err().code, "access_denied", "{reference}");
            assert_eq!(code(&store, reference, &alice).await, "had", "{reference}");
        }
    }
    // With the right password it is here for him, without another transfer.
    let layer = format!("GET /v2/app/blobs/{}", image.layers[0]);
    assert_eq!(code(&store, &name, &access("user:bob", "secret")).await, "had");
    assert_eq!(registry.times(&layer), 1);
    // A login that was taken away is not believed for its old password.
    assert_eq!(
        code(&store, &format!("{}/app:2", registry.address), &access("user:alice", "old")).await,
        "access_denied"
    );
}

#[tokio::test]
async fn another_registry_that_names_a_private_image_gives_no_bytes_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, evil) = (Registry::start(private()), Registry::start(Behaviour::default()));
    let image = image("secret");
    registry.push("app", "1", &image);
    evil.put("app", "manifests/1", image.manifest.clone());
    let store = open(dir.path(), false);
    store.ensure(&format!("{}/app:1", registry.address), &access("user:alice", "secret"), Ask::IfStale).await.unwrap();
    let bob = access("user:bob", "guess");
    for reference in [format!("{}/app:1", evil.address), format!("{}/app@{}", evil.address, digest(&image.manifest))] {
        assert_eq!(code(&store, &reference, &bob).await, "not_found", "{reference}");
        assert_eq!(code(&store, &reference, &ImageAccess::default()).await, "not_found", "{reference}");
    }
    // It has to bring all of it; then the image is public there, and for everybody.
    evil.push("app", "1", &image);
    store.have(&format!("{}/app:1", evil.address)).await.unwrap();
    assert_eq!(code(&store, &format!("{}/app@{}", registry.address, digest(&image.manifest)), &bob).await, "had");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_store_gives_nothing_to_others_either() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, evil) = (Registry::start(private()), Registry::start(Behaviour::default()));
    let image = image("secret");
    registry.push("app", "1", &image);
    evil.put("app", "manifests/1", image.manifest.clone());
    let node = |name: &str| {
        let objects = Some(format!("file://{}/objects", dir.path().display()));
        Store::open(&dir.path().join(name), Config { objects, ..Config::default() }).unwrap()
    };
    let (one, alice) = (node("one"), access("user:alice", "secret"));
    let name = format!("{}/app:1", registry.address);
    one.ensure(&name, &alice, Ask::IfStale).await.unwrap();
    let artifacts = dir.path().join("objects/images");
    while !artifacts.is_dir() || std::fs::read_dir(&artifacts).unwrap().count() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let two = node("two");
    for store in [&one, &two] {
        let evil_name = format!("{}/app:1", evil.address);
        assert_eq!(code(store, &evil_name, &access("user:bob", "guess")).await, "not_found");
        assert_eq!(code(store, &evil_name, &ImageAccess::default()).await, "not_found");
        assert_eq!(code(store, &name, &access("user:bob", "guess")).await, "access_denied");
    }
    let blobs = registry.times(&format!("GET /v2/app/blobs/{}", image.layers[0]));
    assert_eq!(code(&two, &name, &alice).await, "had");
    assert_eq!(registry.times(&format!("GET /v2/app/blobs/{}", image.layers[0])), blobs, "from the object store");
}

#[tokio::test]
async fn what_a_build_made_is_given_to_nobody_by_its_digest() {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("root.tar");
    std::fs::write(&tar, support::root_tar(&[TarFile::file("a", b"built")])).unwrap();
    let store = open(dir.path(), false);
    let built = store.import_private(tar, "prime/_build/b1:1").await.unwrap().record;
    store.pin(&built.digest, "prime/_artifact/x:1").await.unwrap();
    store.remove("prime/_build/b1:1").await.unwrap();
    assert_eq!(
        code(&store, &format!("127.0.0.1:1/y@{}", built.digest), &ImageAccess::default()).await,
        "registry_unreachable"
    );
    assert_eq!(code(&store, "prime/_artifact/x:1", &ImageAccess::default()).await, "had");
}

#[tokio::test]
async fn while_a_registry_is_away_a_private_image_serves_those_who_were_shown_it() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(private());
    registry.push("app", "1", &image("x"));
    let name = format!("{}/app:1", registry.address);
    let config = Config { offline_ok: true, tag_fresh: Duration::ZERO, ..Config::default() };
    let store = Store::open(&dir.path().join("images"), config).unwrap();
    let alice = access("user:alice", "secret");
    assert_eq!(code(&store, &name, &alice).await, "had");
    drop(registry);
    assert_eq!(code(&store, &name, &alice).await, "had");
    for other in [access("user:bob", "secret"), ImageAccess::default()] {
        assert_eq!(code(&store, &name, &other).await, "registry_unreachable");
    }
}

#[tokio::test]
async fn a_fresh_tag_is_not_asked_about_unless_somebody_insists() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour::default());
    registry.push("app", "1", &image("old"));
    let name = format!("{}/app:1", registry.address);
    let store = open(dir.path(), false);
    let first = store.have(&name).await.unwrap();
    let new = image("new");
    registry.push("app", "1", &new);
    let before = registry.asked();
    assert_eq!(store.have(&name).await.unwrap().record.digest, first.record.digest);
    assert_eq!(registry.asked(), before);
    let second = store.ensure(&name, &ImageAccess::default(), Ask::Always).await.unwrap();
    assert_eq!(second.record.digest, digest(&new.manifest));
    assert_eq!(store.have(&name).await.unwrap().record.digest, second.record.digest);
    support::fsck(&first.disk);
}

#[tokio::test]
async fn layers_and_documents_come_once_also_for_another_repository_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour::default());
    let base = vec![TarFile::file("base", &[7; 100_000])];
    let of = |content: &str| {
        TestImage::new(&[(base.clone(), Packing::Gzip), (vec![TarFile::file("c", content.as_bytes())], Packing::Gzip)])
    };
    let store = open(dir.path(), false);
    registry.push("one", "1", &of("a"));
    store.have(&format!("{}/one:1", registry.address)).await.unwrap();
    drop(store);
    let store = open(dir.path(), false);
    let other = of("b");
    registry.push("two", "1", &other);
    store.have(&format!("{}/two:1", registry.address)).await.unwrap();
    let times = |repository: &str| registry.times(&format!("GET /v2/{repository}/blobs/{}", other.layers[0]));
    assert_eq!((times("one"), times("two")), (1, 0));
    assert_eq!(registry.times(&format!("GET /v2/two/blobs/{}", other.layers[1])), 1);
}

#[tokio::test]
async fn indexes_within_indexes_lead_to_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(Behaviour::default());
    let image = image("x");
    registry.push("app", "leaf", &image);
    let mut document = image.index(&[("linux", "arm64")]).to_string().into_bytes();
    let store = open(dir.path(), false);
    for depth in 1..=5 {
        registry.put("app", &format!("manifests/{depth}"), document.clone());
        let answer = code(&store, &format!("{}/app:{depth}", registry.address), &ImageAccess::default()).await;
        assert_eq!(answer, if depth <= 4 { "had" } else { "index_too_deep" }, "{depth}");
        let entry = serde_json::json!({"mediaType": "application/vnd.oci.image.index.v1+json",
            "digest": digest(&document), "size": document.len()});
        document = serde_json::json!({"schemaVersion": 2, "manifests": [entry]}).to_string().into_bytes();
    }
}
