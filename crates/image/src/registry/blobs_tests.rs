use super::*;
use std::io::Write as _;

struct Cache {
    dir: tempfile::TempDir,
    blobs: Arc<Blobs>,
}

fn cache(quota: u64) -> Cache {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(dir.path(), quota).unwrap();
    Cache { dir, blobs }
}

impl Cache {
    /// Takes content in, or finds it; whether it was there.
    async fn take(&self, content: &[u8], scope: Option<&str>) -> (bool, Pinned) {
        match self.blobs.turn(&hash(content).unwrap(), scope).await.unwrap() {
            Ok(pinned) => (true, pinned),
            Err(turn) => {
                let path = self.dir.path().join("new");
                File::create(&path).unwrap().write_all(content).unwrap();
                (false, turn.keep(&path).unwrap())
            }
        }
    }

    fn files(&self) -> usize {
        fs::read_dir(self.dir.path().join(FOLDER)).unwrap().count()
    }

    fn again(self) -> Self {
        let Self { dir, blobs } = self;
        let quota = blobs.quota;
        drop(blobs);
        Self { blobs: Blobs::open(dir.path(), quota).unwrap(), dir }
    }
}

fn text(pinned: Pinned) -> String {
    let mut text = String::new();
    pinned.open().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn what_came_once_is_there_also_after_a_restart() {
    let cache = cache(100);
    assert!(!cache.take(b"one", None).await.0);
    assert!(cache.take(b"one", None).await.0);
    let cache = cache.again();
    let (there, pinned) = cache.take(b"one", None).await;
    assert_eq!((there, text(pinned).as_str()), (true, "one"));
}

#[tokio::test]
async fn what_came_through_a_saved_login_is_for_its_owner_alone() {
    let cache = cache(100);
    assert!(!cache.take(b"secret", Some("user:alice")).await.0);
    let cache = cache.again();
    assert!(cache.take(b"secret", Some("user:alice")).await.0);
    assert!(!cache.take(b"secret", Some("user:bob")).await.0);
    assert!(!cache.take(b"secret", None).await.0);
    // Now it is public.
    assert!(cache.take(b"secret", Some("user:carol")).await.0);
    assert_eq!(cache.files(), 3);
}

#[tokio::test]
async fn the_least_recently_used_go_and_what_is_read_stays() {
    let cache = cache(6);
    drop(cache.take(b"aaa", None).await);
    let read = cache.take(b"bbb", None).await.1;
    drop(cache.take(b"aaa", None).await);
    drop(cache.take(b"ccc", None).await);
    assert!(!cache.take(b"aaa", None).await.0, "least recently used, but for the one that is read");
    let (_, big) = cache.take(b"more than all", None).await;
    assert_eq!(text(big), "more than all");
    assert_eq!(text(read), "bbb");
    assert!(lock(&cache.blobs.state).bytes <= 6);
    cache.blobs.clear();
    assert_eq!(cache.files(), 0);
}

#[tokio::test]
async fn damage_is_found_before_the_first_use_after_a_restart_and_when_in_doubt() {
    let cache = cache(100);
    drop(cache.take(b"one", None).await);
    let file = cache.dir.path().join(FOLDER).join(hash(b"one").unwrap().hex());
    fs::write(&file, b"two").unwrap();
    fs::write(cache.dir.path().join(FOLDER).join("notes.txt"), b"").unwrap();
    let cache = cache.again();
    assert!(!cache.take(b"one", None).await.0);
    fs::write(&file, b"two").unwrap();
    assert!(cache.take(b"one", None).await.0, "believed");
    cache.blobs.doubt();
    assert!(!cache.take(b"one", None).await.0);
}

#[tokio::test]
async fn one_fetches_and_the_others_wait() {
    let cache = cache(100);
    let digest = hash(b"one").unwrap();
    let turn = cache.blobs.turn(&digest, None).await.unwrap().unwrap_err();
    assert!(cache.blobs.is_coming(&digest, None));
    let waiting = tokio::spawn({
        let (blobs, digest) = (cache.blobs.clone(), digest.clone());
        async move { blobs.turn(&digest, None).await.unwrap().map(text).is_ok() }
    });
    tokio::task::yield_now().await;
    // The first fails: it is another's turn, which is not an answer.
    drop(turn);
    assert!(!waiting.await.unwrap());
    assert!(!cache.blobs.is_coming(&digest, None));
}
