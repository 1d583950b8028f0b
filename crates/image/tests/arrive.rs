//! Images go to an object store, and start from there on another node before all of them has come.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::image::{Packing, TestImage};
use support::registry::{Behaviour, Registry};
use support::{Exported, Have, TarFile, fsck};
use warren_image::{Config, Image, Store};

/// Longest wait for work in the background.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Bytes of a chunk.
const CHUNK: usize = 64 << 10;

fn noise(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(step).collect()
}

fn image(own: u32) -> TestImage {
    let base = vec![TarFile::file("base", &noise(1, 12 << 20)), TarFile::file("text", &[b'x'; 300_000])];
    let top = vec![TarFile::file("own", &noise(own, 1 << 20))];
    TestImage::new(&[(base, Packing::Gzip), (top, Packing::Zstd)])
}

struct World {
    dir: tempfile::TempDir,
    registry: Registry,
}

impl World {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), registry: Registry::start(Behaviour::default()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn name(&self, tag: &str) -> String {
        format!("{}/app:{tag}", self.registry.address)
    }

    fn open(&self, node: &str) -> Store {
        let objects = Some(format!("file://{}", self.path("objects").display()));
        Store::open(&self.path(node), Config { objects, ..Config::default() }).unwrap()
    }

    /// An image whose upload has ended.
    async fn uploaded(&self, store: &Store, node: &str, tag: &str) -> Image {
        let image = store.have(&self.name(tag)).await.unwrap();
        until(|| self.artifact(node, &image).exists()).await;
        image
    }

    fn artifact(&self, node: &str, image: &Image) -> PathBuf {
        self.path(node).join("artifacts").join(image.record.digest.replace("sha256:", ""))
    }
}

async fn until(done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < WAIT_MAX, "it took too long");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn bytes_in(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_comes_from_the_object_store_and_is_the_same() {
    let world = World::new();
    world.registry.push("app", "1", &image(2));
    let a = world.open("a");
    let there = world.uploaded(&a, "a", "1").await;
    let blobs = world.registry.asked();
    let b = world.open("b");
    let here = b.have(&world.name("1")).await.unwrap();
    assert!(world.registry.asked() <= blobs + 2, "only the manifest is asked for");
    assert_eq!(here.record, there.record);
    let expected = fs::read(Exported::new(&there.disk).path()).unwrap();
    if let Some(arrival) = &here.arrival {
        assert_eq!(arrival.size(), expected.len() as u64);
        for at in [0, expected.len() / 2, 5 * CHUNK - 100, expected.len() - 3] {
            let mut read = vec![1; 200];
            arrival.read(at as u64, &mut read).await.unwrap();
            let end = expected.len().min(at + 200);
            assert!(read[..end - at] == expected[at..end], "at {at}");
        }
    }
    until(|| world.artifact("b", &here).exists()).await;
    assert!(fs::read(Exported::new(&here.disk).path()).unwrap() == expected);
    assert!(b.have(&world.name("1")).await.unwrap().arrival.is_none());
    assert_eq!(bytes_in(&world.path("b/arriving")), 0);
    fsck(&here.disk);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shared_is_uploaded_once() {
    let world = World::new();
    world.registry.push("app", "1", &image(2));
    world.registry.push("app", "2", &image(3));
    let a = world.open("a");
    world.uploaded(&a, "a", "1").await;
    let one = bytes_in(&world.path("objects/packs"));
    world.uploaded(&a, "a", "2").await;
    let added = bytes_in(&world.path("objects/packs")) - one;
    assert!((13 << 20..14 << 20).contains(&one), "the text is compressed: {one}");
    assert!((1 << 20..2 << 20).contains(&added), "{added}");
}

#[test]
fn an_arrival_that_was_killed_goes_on() {
    let world = World::new();
    world.registry.push("app", "1", &image(2));
    let (packs, away) = (world.path("objects/packs"), world.path("objects/away"));
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let first = runtime();
    let expected = first.block_on(async {
        let a = world.open("a");
        let image = world.uploaded(&a, "a", "1").await;
        fs::read(Exported::new(&image.disk).path()).unwrap()
    });
    let second = runtime();
    fs::rename(&packs, &away).unwrap();
    let image = second.block_on(async { world.open("b").have(&world.name("1")).await.unwrap() });
    assert!(image.arrival.is_some());
    let record = image.record.clone();
    // As a kill: nothing is ended in order.
    drop(image);
    second.shutdown_timeout(WAIT_MAX);
    fs::rename(&away, &packs).unwrap();
    // A pack that is damaged counts as one that is not there.
    let pack = fs::read_dir(&packs).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&pack).unwrap();
    fs::write(&pack, vec![0; whole.len()]).unwrap();
    runtime().block_on(async {
        let b = world.open("b");
        let image = b.lease(&record.digest).unwrap();
        let arrival = image.arrival.clone().unwrap();
        let (mut read, mut late) = (vec![0; expected.len()], vec![0; expected.len()]);
        let repair = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            fs::write(&pack, &whole).unwrap();
        };
        let (done, ()) = tokio::join!(arrival.read(0, &mut read), repair);
        done.unwrap();
        assert!(read == expected);
        until(|| world.artifact("b", &image).exists()).await;
        arrival.read(0, &mut late).await.unwrap();
        assert!(late == expected);
        fsck(&image.disk);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arriving_image_that_nobody_needs_goes() {
    let world = World::new();
    world.registry.push("app", "1", &image(2));
    let a = world.open("a");
    world.uploaded(&a, "a", "1").await;
    fs::rename(world.path("objects/packs"), world.path("objects/away")).unwrap();
    let b = world.open("b");
    drop(b.have(&world.name("1")).await.unwrap());
    b.remove(&world.name("1")).await.unwrap();
    for folder in ["manifests", "records", "names", "arriving", "artifacts"] {
        assert_eq!(fs::read_dir(world.path("b").join(folder)).unwrap().count(), 0, "{folder}");
    }
    // It comes once more while the first arrival may not have noticed its end; what is whole is whole.
    let again = b.have(&world.name("1")).await.unwrap();
    fs::rename(world.path("objects/away"), world.path("objects/packs")).unwrap();
    until(|| world.artifact("b", &again).exists()).await;
    assert!(b.have(&world.name("1")).await.unwrap().arrival.is_none());
    let (here, there) = (Exported::new(&again.disk), Exported::new(&a.have(&world.name("1")).await.unwrap().disk));
    assert!(fs::read(here.path()).unwrap() == fs::read(there.path()).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_store_that_fails_is_done_without() {
    let world = World::new();
    world.registry.push("app", "1", &image(2));
    let config = Config { objects: Some("http://127.0.0.1:1/nothing".to_owned()), ..Config::default() };
    let store = Store::open(&world.path("a"), config).unwrap();
    let image = tokio::time::timeout(WAIT_MAX, store.have(&world.name("1"))).await.unwrap().unwrap();
    fsck(&image.disk);
    assert!(matches!(
        Store::open(&world.path("c"), Config { objects: Some("nonsense".to_owned()), ..Config::default() }),
        Err(warren_image::StoreError::Objects { .. })
    ));
}

/// Damages one pack of the object store and takes another away.
fn spoil(packs: &Path) -> usize {
    let mut all: Vec<PathBuf> = fs::read_dir(packs).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort_by_key(|path| fs::metadata(path).unwrap().len());
    let (gone, damaged) = (all.pop().unwrap(), all.pop().unwrap());
    fs::remove_file(gone).unwrap();
    let mut bytes = fs::read(&damaged).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(damaged, bytes).unwrap();
    fs::read_dir(packs).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_object_store_has_lost_comes_from_the_registry_and_is_given_back_to_it() {
    let world = World::new();
    world.registry.push("app", "1", &image(2));
    let there = world.uploaded(&world.open("a"), "a", "1").await;
    let expected = fs::read(Exported::new(&there.disk).path()).unwrap();
    let packs = world.path("objects/packs");
    let left = spoil(&packs);
    let b = world.open("b");
    let here = b.have(&world.name("1")).await.unwrap();
    let mut read = vec![0; expected.len()];
    let arrival = here.arrival.clone().unwrap();
    tokio::time::timeout(WAIT_MAX, arrival.read(0, &mut read)).await.unwrap().unwrap();
    assert!(read == expected);
    until(|| world.artifact("b", &here).exists()).await;
    assert!(fs::read(Exported::new(&here.disk).path()).unwrap() == expected);
    fsck(&here.disk);
    assert_eq!(fs::read_dir(&packs).unwrap().count(), left + 1, "what was lost is there again");
    // A third node needs the registry for the manifest alone.
    let before = world.registry.asked();
    let c = world.open("c");
    let third = c.have(&world.name("1")).await.unwrap();
    until(|| world.artifact("c", &third).exists()).await;
    assert!(world.registry.asked() <= before + 2, "only the manifest is asked for");
    assert!(fs::read(Exported::new(&third.disk).path()).unwrap() == expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_can_give_is_an_error_that_says_why() {
    let world = World::new();
    world.registry.push("app", "1", &image(2));
    let there = world.uploaded(&world.open("a"), "a", "1").await;
    let size = fs::read(Exported::new(&there.disk).path()).unwrap().len();
    spoil(&world.path("objects/packs"));
    let b = world.open("b");
    let here = b.have(&world.name("1")).await.unwrap();
    world.registry.forget("app");
    let mut read = vec![0; size];
    let asked = here.arrival.as_ref().unwrap().read(0, &mut read);
    let error = tokio::time::timeout(WAIT_MAX, asked).await.unwrap().unwrap_err().to_string();
    assert!(error.contains("object store") && error.contains("has no app"), "{error}");
    // The registry is there again for whoever asks later.
    world.registry.push("app", "1", &image(2));
    let again = b.have(&world.name("1")).await.unwrap();
    tokio::time::timeout(WAIT_MAX, again.arrival.unwrap().read(0, &mut read)).await.unwrap().unwrap();
}
