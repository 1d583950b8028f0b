//! The store over files: imports, names, leases, what a kill leaves behind.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Have as _, TarFile, root_tar};
use warren_image::{Config, Store, StoreError};

/// Longest wait for a lock that nobody means to hold.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// A child that another test forks holds a copy of each lock until it executes its program; so one that is held is tried again.
fn open(dir: &Path) -> Store {
    let began = Instant::now();
    loop {
        match Store::open(dir, Config::default()) {
            Err(StoreError::Locked(_)) if began.elapsed() < LOCK_WAIT_MAX => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

fn files(dir: &Path, sub: &str) -> usize {
    fs::read_dir(dir.join(sub)).unwrap().count()
}

/// Bytes of all chunks, as the file system counts them.
fn stored(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    dir.join("chunks").metadata().unwrap().blocks() * 512
}

#[tokio::test]
async fn a_blank_file_system_is_made_once_and_grows_to_the_size_of_a_volume() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (first, second) = tokio::join!(store.blank(), store.blank());
    let (blank, again) = (first.unwrap(), second.unwrap());
    assert_eq!(blank.record.digest, again.record.digest);
    assert!(blank.record.private && files(dir.path(), "manifests") == 1);
    let path = dir.path().join("volume.ext4");
    blank.disk.export(&path).unwrap();
    let (file, size) = (fs::File::options().write(true).open(&path).unwrap(), 64 << 30);
    for piece in warren_image::ext4::grow::grow(&blank.disk, size).unwrap() {
        file.write_all_at(&piece.bytes, piece.offset).unwrap();
    }
    file.set_len(size).unwrap();
    let check = std::process::Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
}

#[tokio::test]
async fn an_imported_name_needs_no_registry() {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("root.tar");
    fs::write(&tar, root_tar(&[TarFile::file("etc/os-release", b"ID=test\n")])).unwrap();
    let store = open(&dir.path().join("images"));
    let image = store.import(tar, "my-root:1").await.unwrap();
    assert_eq!(image.record.reference, "my-root:1");
    assert_eq!(image.record.architecture, "amd64");
    support::fsck(&image.disk);
    let again = store.have("docker.io/library/my-root:1").await.unwrap();
    assert_eq!(again.record.digest, image.record.digest);
    assert_eq!(store.list().len(), 1);
    assert!(store.builds().is_empty());
}

#[tokio::test]
async fn the_last_lease_lets_a_removed_image_go() {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("root.tar");
    fs::write(&tar, root_tar(&[TarFile::file("a", b"a")])).unwrap();
    let images = dir.path().join("images");
    let store = open(&images);
    let image = store.import(tar, "x:1").await.unwrap();
    store.remove("x:1").await.unwrap();
    assert!(store.list().is_empty());
    assert_eq!(store.remove("x:1").await.unwrap_err().code, "not_found");
    let second = store.lease(&image.record.digest).unwrap();
    drop(image);
    support::fsck(&second.disk);
    assert!(stored(&images) > 0);
    drop(second);
    assert_eq!(["manifests", "records", "names", "tmp"].map(|sub| files(&images, sub)), [0; 4]);
    assert_eq!(stored(&images), 0);
}

#[tokio::test]
async fn a_running_sandbox_is_adopted_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("root.tar");
    fs::write(&tar, root_tar(&[TarFile::file("a", b"a")])).unwrap();
    let images = dir.path().join("images");
    let digest = {
        let store = open(&images);
        let image = store.import(tar, "x:1").await.unwrap();
        store.remove("x:1").await.unwrap();
        // As after a kill: the lease is never given back.
        std::mem::forget(image.lease.clone());
        image.record.digest
    };
    let store = open(&images);
    let image = store.lease(&digest).unwrap();
    assert_eq!(store.collect().await, 0);
    support::fsck(&image.disk);
    drop(image);
    assert!(store.lease(&digest).is_none());
}

#[tokio::test]
async fn two_names_of_the_same_content_share_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("root.tar");
    fs::write(&tar, root_tar(&[TarFile::file("a", b"a")])).unwrap();
    let images = dir.path().join("images");
    let store = open(&images);
    let (one, two) = tokio::join!(store.import(tar.clone(), "x:1"), store.import(tar.clone(), "y:1"));
    assert_eq!(one.unwrap().disk.offset(), two.unwrap().disk.offset());
    assert_eq!(files(&images, "manifests"), 1);
    store.remove("x:1").await.unwrap();
    assert!(store.have("y:1").await.is_ok());
    // A name that moves on lets its old image go.
    fs::write(&tar, root_tar(&[TarFile::file("b", b"b")])).unwrap();
    store.import(tar, "y:1").await.unwrap();
    assert_eq!((files(&images, "manifests"), files(&images, "tmp")), (1, 0));
}

#[tokio::test]
async fn a_store_that_was_killed_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("root.tar");
    fs::write(&tar, root_tar(&[TarFile::file("a", b"a")])).unwrap();
    let images = dir.path().join("images");
    let digest = {
        let store = open(&images);
        assert!(matches!(Store::open(&images, Config::default()), Err(StoreError::Locked(_))));
        store.import(tar.clone(), "x:1").await.unwrap().record.digest
    };
    let hex = digest.strip_prefix("sha256:").unwrap();
    // Each of these is what a kill between two steps leaves.
    fs::write(images.join("tmp/half-made"), b"x").unwrap();
    fs::write(images.join("manifests").join("0".repeat(64)), b"no record").unwrap();
    fs::write(images.join(format!("records/{}.json", "1".repeat(64))), b"{\"for").unwrap();
    fs::write(images.join(format!("names/{}.json", "2".repeat(64))), b"").unwrap();
    let store = open(&images);
    assert_eq!(store.list().len(), 1);
    for sub in ["manifests", "records", "names"] {
        assert_eq!(files(&images, sub), 1, "{sub}");
    }
    assert_eq!(files(&images, "tmp"), 0);
    drop(store);
    // A manifest that is gone takes its record and its name along.
    fs::remove_file(images.join("manifests").join(hex)).unwrap();
    let store = open(&images);
    assert!(store.list().is_empty());
    assert_eq!((files(&images, "records"), files(&images, "names")), (0, 0));
    assert!(store.import(tar, "x:1").await.is_ok());
}

/// Not a test of its own: the process that `a_kill_at_any_moment_loses_nothing` kills.
#[tokio::test]
async fn child_that_is_killed() {
    let Some(dir) = std::env::var_os("WARREN_TEST_KILLED_DIR").map(std::path::PathBuf::from) else { return };
    let store = open(&dir.join("images"));
    for round in 0.. {
        let tar = dir.join(format!("root-{}.tar", round % 2));
        store.import(tar, "x:1").await.unwrap();
        println!("imported");
    }
}

#[tokio::test]
async fn a_kill_at_any_moment_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..2u8 {
        let tar = root_tar(&[TarFile::file("a", &vec![i + 1; 1 << 20])]);
        fs::write(dir.path().join(format!("root-{i}.tar")), tar).unwrap();
    }
    let images = dir.path().join("images");
    open(&images).import(dir.path().join("root-0.tar"), "x:1").await.unwrap();
    let bytes = stored(&images);
    for round in 0..25u64 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["child_that_is_killed", "--exact", "--nocapture"])
            .env("WARREN_TEST_KILLED_DIR", dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Not to wait for anything: the moment is what varies.
        std::thread::sleep(std::time::Duration::from_millis(20 + 13 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let store = open(&images);
        let image = store.have("x:1").await.unwrap();
        support::fsck(&image.disk);
        store.collect().await;
        assert_eq!((files(&images, "manifests"), files(&images, "records"), files(&images, "tmp")), (1, 1, 0));
        assert_eq!(stored(&images), bytes, "both images are of the same size; nothing else may be left");
    }
}

#[tokio::test]
async fn what_is_no_image_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let images = dir.path().join("images");
    let store = open(&images);
    let path = dir.path().join("x");
    let cut = root_tar(&[TarFile::file("a", &[7; 5000])])[..2000].to_vec();
    let escape = root_tar(&[TarFile::file("../../etc/passwd", b"x")]);
    for (content, code) in [
        (b"not a tar".repeat(100), "bad_content"),
        (Vec::new(), "bad_content"),
        (cut, "bad_content"),
        (escape, "bad_content"),
    ] {
        fs::write(&path, content).unwrap();
        assert_eq!(store.import(path.clone(), "x:1").await.unwrap_err().code, code);
    }
    assert_eq!(store.import(dir.path().join("missing"), "x:1").await.unwrap_err().code, "not_found");
    assert_eq!(store.import(path.clone(), "../x").await.unwrap_err().code, "bad_reference");
    assert_eq!(store.have("prime/alice/x:1").await.unwrap_err().code, "not_found");
    assert_eq!((files(&images, "manifests"), files(&images, "tmp"), files(&images, "records")), (0, 0, 0));
}
