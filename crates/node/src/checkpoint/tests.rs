use super::*;
use std::path::Path;
use warren_image::Config;
use warren_vmm::{OVERLAY_PIECE, create_overlay};

/// Length of the disk.
const DISK: u64 = 1 << 30;

struct World {
    dir: tempfile::TempDir,
    images: Store,
    base: String,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tar = dir.path().join("root.tar");
        let mut builder = tar::Builder::new(std::fs::File::create(&tar).unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o644);
        builder.append_data(&mut header, "a", &b"abc"[..]).unwrap();
        builder.into_inner().unwrap();
        let images = Store::open(&dir.path().join("images"), Config::default()).unwrap();
        let base = images.import(tar, "base:1").await.unwrap().record.digest;
        Self { dir, images, base }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("checkpoints")
    }

    fn open(&self) -> Arc<Checkpoints> {
        let checkpoints = Checkpoints::open(self.root(), self.images.clone()).unwrap();
        checkpoints.resume().unwrap();
        checkpoints
    }

    /// What a killed node left of a checkpoint.
    fn left(&self, id: &CheckpointId, base: &str, stage: Stage) -> Folder {
        std::fs::create_dir_all(self.root()).unwrap();
        let record = Record { sandbox: "s1".into(), base: base.to_owned(), boot: crate::host::boot_id(), stage };
        let folder = Folder::create(&self.root(), id, &record).unwrap();
        let piece = [7u8; OVERLAY_PIECE as usize];
        create_overlay(&self.layer(id), DISK, &[(OVERLAY_PIECE * 9, &piece[..])]).unwrap();
        folder
    }

    fn layer(&self, id: &CheckpointId) -> PathBuf {
        self.root().join(id.as_str()).join("0.qcow2")
    }
}

fn id(text: &str) -> CheckpointId {
    CheckpointId::parse(text).unwrap()
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_makes_a_frozen_one_durable_and_the_next_knows_it() {
    let world = World::new().await;
    let one = id("k1");
    world.left(&one, &world.base, Stage::Frozen { layers: 1 });
    let Some(CheckpointState::Durable(made)) = world.open().state(&one).await else { panic!("not durable") };
    assert_eq!((made.disk_size_bytes, made.stored_bytes), (DISK, OVERLAY_PIECE));
    assert!(!world.layer(&one).exists());
    let again = world.open();
    assert_eq!(again.state(&one).await, Some(CheckpointState::Durable(made.clone())));
    // The image is kept by its name alone.
    world.images.collect().await;
    assert!(world.images.lease(&made.digest).is_some());
    again.remove(&one).await.unwrap();
    again.remove(&one).await.unwrap();
    assert!(world.images.lease(&made.digest).is_none() && is_empty(&world.root()));
    assert_eq!(again.state(&one).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_an_image_already_goes_on_without_its_layers() {
    let world = World::new().await;
    let one = id("k1");
    let folder = world.left(&one, &world.base, Stage::Frozen { layers: 1 });
    let Some(CheckpointState::Durable(made)) = world.open().state(&one).await else { panic!("not durable") };
    let record = Record {
        sandbox: "s1".into(),
        base: world.base.clone(),
        boot: crate::host::boot_id(),
        stage: Stage::Image { made: made.clone() },
    };
    folder.write(&record).unwrap();
    assert_eq!(world.open().state(&one).await, Some(CheckpointState::Durable(made)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_never_promised_is_undone() {
    let world = World::new().await;
    world.left(&id("k1"), &world.base, Stage::Freezing);
    std::fs::create_dir(world.root().join("k2")).unwrap();
    std::fs::create_dir(world.root().join("not a checkpoint")).unwrap();
    assert_eq!(world.open().state(&id("k1")).await, None);
    assert!(is_empty(&world.root()));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_made_has_failed_for_good() {
    let world = World::new().await;
    let (lost, damaged) = (id("k1"), id("k2"));
    world.left(&lost, &format!("sha256:{}", "0".repeat(64)), Stage::Frozen { layers: 1 });
    world.left(&damaged, &world.base, Stage::Frozen { layers: 1 });
    std::fs::write(world.layer(&damaged), "no qcow2").unwrap();
    let checkpoints = world.open();
    for one in [&lost, &damaged] {
        assert!(matches!(checkpoints.state(one).await, Some(CheckpointState::Failed { .. })), "{one}");
    }
    let again = world.open();
    for one in [&lost, &damaged] {
        assert!(matches!(again.state(one).await, Some(CheckpointState::Failed { .. })), "{one}");
        assert!(!world.layer(one).exists());
        again.remove(one).await.unwrap();
    }
    assert!(is_empty(&world.root()));
}
