//! Images of layers: what a VMM wrote over an image becomes an image of its own, here and in an object store.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Exported, Have as _, TarFile, root_tar};
use warren_image::{Config, Image, Store};

/// Longest wait for work in the background.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Bytes of a chunk.
const CHUNK: usize = 64 << 10;
/// Length of the disks that layers are of.
const DISK: usize = 1 << 30;

fn open(dir: &Path, node: &str, with_objects: bool) -> Store {
    let objects = with_objects.then(|| format!("file://{}", dir.join("objects").display()));
    Store::open(&dir.join(node), Config { objects, ..Config::default() }).unwrap()
}

async fn base(dir: &Path, store: &Store) -> Image {
    let tar = dir.join("root.tar");
    let noise: Vec<u8> = (0..400_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&tar, root_tar(&[TarFile::file("a", &noise), TarFile::file("b", b"b")])).unwrap();
    store.import(tar, "base:1").await.unwrap()
}

/// A layer with what `qemu-io` is told to write.
fn layer(path: &Path, commands: &[&str]) -> File {
    let made = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(path).arg(DISK.to_string()).status();
    assert!(made.unwrap().success());
    let words = commands.iter().flat_map(|command| ["-c", command]);
    let done = Command::new("qemu-io").args(words).arg(path).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    File::open(path).unwrap()
}

fn name(digest: &str) -> String {
    format!("prime/_checkpoint/k1@{digest}")
}

fn content(image: &Image) -> Vec<u8> {
    fs::read(Exported::new(&image.disk).path()).unwrap()
}

fn files(dir: &Path, sub: &str) -> Vec<PathBuf> {
    fs::read_dir(dir.join(sub)).unwrap().map(|entry| entry.unwrap().path()).collect()
}

async fn until(done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < WAIT_MAX, "it took too long");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upper_layer_shows_and_what_it_lacks_shows_through() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), "a", false);
    let base = base(dir.path(), &store).await;
    let mut expected = content(&base);
    assert!(expected[3 * CHUNK..4 * CHUNK].iter().any(|byte| *byte != 0), "the test writes zeroes where something is");
    expected.resize(DISK, 0);
    // A first layer, a second that covers some of it, zeroes over the image, and the very end.
    let last = format!("write -P 5 {} 64k", DISK - CHUNK);
    let lower = layer(&dir.path().join("0"), &["write -P 1 128k 64k", "write -P 2 600M 128k"]);
    let upper =
        layer(&dir.path().join("1"), &["write -P 3 600M 64k", "write -z 192k 64k", "write -z 614465536 64k", &last]);
    expected[2 * CHUNK..3 * CHUNK].fill(1);
    expected[3 * CHUNK..4 * CHUNK].fill(0);
    expected[600 << 20..(600 << 20) + CHUNK].fill(3);
    expected[(600 << 20) + CHUNK..(600 << 20) + 2 * CHUNK].fill(2);
    expected[586 << 20..(586 << 20) + CHUNK].fill(0);
    expected[DISK - CHUNK..].fill(5);
    let made = store.layered(&base, vec![lower, upper], name).await.unwrap();
    assert!(content(&made.image) == expected);
    assert_eq!(made.added_bytes, 4 * CHUNK as u64);
    let parts = expected.chunks(CHUNK).filter(|chunk| chunk.iter().any(|byte| *byte != 0)).count();
    assert_eq!(made.occupied_bytes, (parts * CHUNK) as u64);
    let record = &made.image.record;
    assert_eq!(
        (record.reference.clone(), &record.architecture, record.private),
        (name(&record.digest), &base.record.architecture, true)
    );
    // Named, so that it stays; by nobody's digest alone, so that nobody else gets it.
    store.collect().await;
    assert!(store.have(&name(&record.digest)).await.is_ok());
    assert!(store.have(&format!("base@{}", record.digest)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_content_has_an_equal_digest_and_goes_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), "a", false);
    let base = base(dir.path(), &store).await;
    let make = async |file: &str, commands: &[&str]| {
        let layers = vec![layer(&dir.path().join(file), commands)];
        store.layered(&base, layers, name).await.unwrap().image
    };
    let one = make("0", &["write -P 1 1M 64k"]).await;
    let same = make("1", &["write -P 9 1M 64k", "write -P 1 1M 64k"]).await;
    let other = make("2", &["write -P 2 1M 64k"]).await;
    assert_eq!(one.record.digest, same.record.digest);
    assert_ne!(one.record.digest, other.record.digest);
    // A layer on the image of a layer.
    let layers = vec![layer(&dir.path().join("3"), &["write -P 7 2M 64k"])];
    let on_it = store.layered(&other, layers, name).await.unwrap().image;
    assert_eq!([content(&on_it)[1 << 20], content(&on_it)[2 << 20]], [2, 7]);
    for image in [&one, &other, &on_it] {
        store.remove(&image.record.reference).await.unwrap();
    }
    drop((one, same, other, on_it));
    assert_eq!(files(&dir.path().join("a"), "records").len(), 1, "the image below alone is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), "a", false);
    let base = base(dir.path(), &store).await;
    let path = dir.path().join("0");
    drop(layer(&path, &["write -P 1 1M 64k"]));
    let sound = fs::read(&path).unwrap();
    let mut small = sound.clone();
    small[24..32].copy_from_slice(&(1u64 << 20).to_be_bytes());
    for damaged in [Vec::new(), vec![0; 1 << 20], small] {
        fs::write(&path, damaged).unwrap();
        let error = store.layered(&base, vec![File::open(&path).unwrap()], name).await.unwrap_err();
        assert_eq!(error.code, "bad_content", "{error}");
    }
    let other = dir.path().join("1");
    let made = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&other).arg("2G").status().unwrap();
    assert!(made.success());
    fs::write(&path, sound).unwrap();
    let sizes = vec![File::open(&path).unwrap(), File::open(&other).unwrap()];
    assert_eq!(store.layered(&base, sizes, name).await.unwrap_err().code, "bad_content");
    assert_eq!(files(&dir.path().join("a"), "records").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_has_it_from_the_object_store_as_long_as_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let a = open(dir.path(), "a", true);
    let base = base(dir.path(), &a).await;
    let layers = vec![layer(&dir.path().join("0"), &["write -P 1 1M 64k", "write -P 2 700M 192k"])];
    let made = a.layered(&base, layers, name).await.unwrap().image;
    a.until_stored(&made).await.unwrap();
    let digest = &made.record.digest;
    assert!(dir.path().join("objects/images").join(digest.replace("sha256:", "")).exists());

    let b = open(dir.path(), "b", true);
    let here = b.have(&name(digest)).await.unwrap();
    let twice = b.have(&name(digest)).await.unwrap();
    assert_eq!((&here.record.digest, &twice.record.digest), (digest, digest));
    until(|| !files(&dir.path().join("b"), "artifacts").is_empty()).await;
    assert!(content(&here) == content(&made));
    // Another checkpoint with the same content; and somebody who knows no more than the digest.
    assert!(b.have(&format!("prime/_checkpoint/k2@{digest}")).await.is_ok());
    assert!(b.have(&format!("prime/ann/k1@{digest}")).await.is_err());
    // A disk of this node is made a checkpoint of, too.
    let layers = vec![layer(&dir.path().join("1"), &["write -P 4 1M 64k"])];
    let on_it = b.layered(&here, layers, |digest| format!("prime/_checkpoint/k3@{digest}")).await.unwrap().image;
    assert_eq!(content(&on_it)[1 << 20], 4);
    drop((here, twice));
    assert_eq!(files(&dir.path().join("b"), "records").len(), 1, "it went with its last use");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_is_still_arriving_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let a = open(dir.path(), "a", true);
    let base = base(dir.path(), &a).await;
    let layers = vec![layer(&dir.path().join("0"), &["write -P 1 1M 64k"])];
    let made = a.layered(&base, layers, name).await.unwrap().image;
    a.until_stored(&made).await.unwrap();
    let b = open(dir.path(), "b", true);
    let here = b.have(&name(&made.record.digest)).await.unwrap();
    let layers = vec![layer(&dir.path().join("1"), &["write -P 4 2M 64k"])];
    let on_it = b.layered(&here, layers, |digest| format!("prime/_checkpoint/k3@{digest}")).await.unwrap().image;
    let mut expected = content(&made);
    expected[2 << 20..(2 << 20) + CHUNK].fill(4);
    assert!(content(&on_it) == expected);
}
