//! An image whose chunks still come from the object store: what is asked for comes first, the rest follows.

use super::artifact::{Artifact, RemotePart};
use super::{Remote, RemoteError};
use crate::chunks::{CHUNK, Chunks, Manifest};
use crate::store::{blocking, chain, lock};
use futures_util::StreamExt as _;
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Parts that come along with one that is asked for: neighbours, at most this many.
const WINDOW: usize = 8;
/// Packs that are fetched at once while nobody asks for anything.
const PACKS_AT_ONCE: usize = 4;
/// Time without a question after which the rest may follow.
const QUIET: Duration = Duration::from_millis(300);
/// Longest that the rest waits for its next piece, whatever is asked.
const YIELD_MAX: Duration = Duration::from_secs(1);
/// Longest that one question is tried.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(120);
/// Time after which who waits for what another fetches looks whether that still goes on.
const TAKE_OVER_AFTER: Duration = Duration::from_millis(250);
/// Tries after which help is asked for, if the object store has no such part or a damaged one, and if it does not answer as it should.
const LASTING_TRIES_MAX: u32 = 3;
const PASSING_TRIES_MAX: u32 = 10;
/// First and longest pause between two tries.
const RETRY_PAUSE: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(10);

/// Part of an image could not be had.
#[derive(Debug, Clone, thiserror::Error)]
#[error("part of the image does not come from the object store: {0}")]
pub struct ArriveError(String);

/// An image that is arriving. Reads wait for what they need.
#[derive(Debug)]
pub struct Arrival {
    remote: Remote,
    chunks: Chunks,
    artifact: Artifact,
    /// Slots of the artifact's parts, in order.
    slots: Vec<u32>,
    /// Windows that somebody fetches now.
    fetching: Mutex<HashSet<usize>>,
    /// Questions that wait.
    waiting: AtomicUsize,
    last_asked: Mutex<Instant>,
    /// Bytes that came, as they are stored there.
    received: AtomicU64,
    given_up: AtomicBool,
    help: watch::Sender<Help>,
    /// Whether the object store has lost or damaged part of it.
    is_damaged: AtomicBool,
}

/// Whether an arrival goes on by itself.
#[derive(Debug, Clone, PartialEq)]
enum Help {
    NotNeeded,
    /// What is missing must come from elsewhere.
    Wanted,
    /// That could not be done, for this reason.
    InVain(String),
}

impl Arrival {
    /// Of an image whose manifest is in the store.
    pub(crate) fn new(remote: Remote, chunks: Chunks, artifact: Artifact, manifest: &Manifest) -> Arc<Self> {
        let slots = manifest.parts.iter().map(|part| part.slot).collect();
        Arc::new(Self {
            remote,
            chunks,
            artifact,
            slots,
            fetching: Mutex::default(),
            waiting: AtomicUsize::new(0),
            last_asked: Mutex::new(Instant::now()),
            received: AtomicU64::new(0),
            given_up: AtomicBool::new(false),
            help: watch::Sender::new(Help::NotNeeded),
            is_damaged: AtomicBool::new(false),
        })
    }

    /// Length of the disk, bytes.
    pub fn size(&self) -> u64 {
        self.artifact.size
    }

    /// Bytes that came so far and bytes of the whole image, as the object store has them.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let total = self.artifact.parts.iter().map(|part| u64::from(part.place.len)).sum();
        (self.received.load(Ordering::Relaxed), total)
    }

    /// Reads from the disk; waits for what is not here yet, two minutes at most. Behind the end there are zeroes.
    pub async fn read(&self, mut at: u64, buffer: &mut [u8]) -> Result<(), ArriveError> {
        let mut rest = buffer;
        while !rest.is_empty() {
            let within = at % CHUNK as u64;
            let len = rest.len().min(CHUNK - within as usize);
            let (now, later) = rest.split_at_mut(len);
            match self.find(at / CHUNK as u64) {
                Some(number) => {
                    self.wait_for(number).await?;
                    let read = self.chunks.read_part(self.slots[number], within, now);
                    read.map_err(|error| ArriveError(error.to_string()))?;
                }
                None => now.fill(0),
            }
            at += len as u64;
            rest = later;
        }
        Ok(())
    }

    /// Fetches all that is missing. Ends early only if it is told to give up.
    pub(crate) async fn finish(self: &Arc<Self>) -> Result<(), ArriveError> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (number, part) in self.artifact.parts.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if self.artifact.parts[run.start].place.pack == part.place.pack => run.end = number + 1,
                _ => runs.push(number..number + 1),
            }
        }
        let fetches = futures_util::stream::iter(runs).map(|run| {
            let arrival = self.clone();
            async move {
                arrival.let_questions_pass().await;
                arrival.insist(run, None).await
            }
        });
        let mut fetches = fetches.buffer_unordered(PACKS_AT_ONCE);
        while let Some(fetched) = fetches.next().await {
            fetched?;
        }
        Ok(())
    }

    /// Nobody needs it any more.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Waits until parts must come from elsewhere.
    pub(crate) async fn until_stuck(&self) {
        // The sender lives as long as this does.
        let _ = self.help.subscribe().wait_for(|help| *help == Help::Wanted).await;
    }

    /// What was missing has been brought from elsewhere.
    pub(crate) fn rescued(&self) {
        self.help.send_replace(Help::NotNeeded);
    }

    /// It could not be, for this reason.
    pub(crate) fn not_rescued(&self, problem: String) {
        self.help.send_replace(Help::InVain(problem));
    }

    /// There may be a way that there was not before.
    pub(crate) fn try_again(&self) {
        self.help.send_if_modified(|help| {
            let is_over = matches!(help, Help::InVain(_));
            if is_over {
                *help = Help::NotNeeded;
            }
            is_over
        });
    }

    /// Whether the object store turned out to have lost or damaged part of it.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    fn find(&self, index: u64) -> Option<usize> {
        self.artifact.parts.binary_search_by_key(&index, |part| u64::from(part.index)).ok()
    }

    async fn let_questions_pass(&self) {
        let quiet = async {
            while self.waiting.load(Ordering::Relaxed) > 0 || lock(&self.last_asked).elapsed() < QUIET {
                sleep(QUIET / 4).await;
            }
        };
        // Questions without end must not keep the rest away for ever.
        let _ = timeout(YIELD_MAX, quiet).await;
    }

    async fn wait_for(&self, number: usize) -> Result<(), ArriveError> {
        if self.is_here(number) {
            return Ok(());
        }
        *lock(&self.last_asked) = Instant::now();
        let _asked = Asked::new(&self.waiting);
        let first = number - number % WINDOW;
        let until = Instant::now() + ANSWER_WAIT_MAX;
        loop {
            if let Some(_fetching) = Fetching::begin(&self.fetching, first) {
                let end = (first + WINDOW).min(self.artifact.parts.len());
                let fetched = self.insist(first..end, Some(until)).await;
                // What fails may be a neighbour.
                return if self.is_here(number) { Ok(()) } else { fetched };
            }
            // Whoever fetches it may be broken off: then it is our turn.
            let _ = timeout(TAKE_OVER_AFTER, self.chunks.until_here(&self.artifact.parts[number].id)).await;
            if self.is_here(number) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(ArriveError("it took too long".to_owned()));
            }
        }
    }

    fn is_here(&self, number: usize) -> bool {
        self.chunks.is_here(&self.artifact.parts[number].id)
    }

    /// Fetches parts, again and again if need be.
    async fn insist(&self, run: Range<usize>, until: Option<Instant>) -> Result<(), ArriveError> {
        let (mut pause, mut tries) = (RETRY_PAUSE.start, 0);
        loop {
            if self.given_up.load(Ordering::Relaxed) {
                return Err(ArriveError("nobody needs it any more".to_owned()));
            }
            let error = match self.fetch(run.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            tries += 1;
            let is_stuck = tries >= if error.is_lasting() { LASTING_TRIES_MAX } else { PASSING_TRIES_MAX };
            if is_stuck && error.is_lasting() {
                self.is_damaged.store(true, Ordering::Relaxed);
            }
            let in_vain = if is_stuck { self.ask_for_help() } else { None };
            let error = ArriveError(in_vain.iter().fold(chain(&error), |error, why| format!("{error}; {why}")));
            if until.is_some_and(|until| in_vain.is_some() || Instant::now() + pause > until) {
                return Err(error);
            }
            tracing::warn!(digest = self.artifact.record.digest, %error, "tried again");
            self.rest(&run, pause).await;
            pause = (pause * 2).min(RETRY_PAUSE.end);
        }
    }

    /// Why help was in vain, if it was.
    fn ask_for_help(&self) -> Option<String> {
        self.help.send_if_modified(|help| {
            let is_new = *help == Help::NotNeeded;
            if is_new {
                *help = Help::Wanted;
            }
            is_new
        });
        match &*self.help.borrow() {
            Help::InVain(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Waits for `pause`, or until what is missing has come another way.
    async fn rest(&self, run: &Range<usize>, pause: Duration) {
        let come = async {
            for part in &self.artifact.parts[run.clone()] {
                self.chunks.until_here(&part.id).await;
            }
        };
        let _ = timeout(pause, come).await;
    }

    /// Fetches those of `run` that are missing: one request for each pack that they lie in.
    async fn fetch(&self, run: Range<usize>) -> Result<(), FetchError> {
        let missing: Vec<RemotePart> =
            self.artifact.parts[run].iter().filter(|part| !self.chunks.is_here(&part.id)).copied().collect();
        for parts in missing.chunk_by(|a, b| a.place.pack == b.place.pack) {
            let start = parts.iter().map(|part| part.place.offset).min().unwrap_or(0);
            let end = parts.iter().map(|part| part.place.offset + part.place.len).max().unwrap_or(0);
            let pack = self.artifact.packs[parts[0].place.pack as usize];
            let bytes = self.remote.pack_range(pack, start..end).await?;
            self.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            let (chunks, parts) = (self.chunks.clone(), parts.to_vec());
            blocking(move || parts.iter().try_for_each(|part| take_in(&chunks, part, start, &bytes))).await?;
        }
        Ok(())
    }
}

/// One part of `bytes`, which begin at `start` of its pack, becomes a chunk of the store.
fn take_in(chunks: &Chunks, part: &RemotePart, start: u32, bytes: &[u8]) -> Result<(), FetchError> {
    let from = (part.place.offset - start) as usize;
    let stored = bytes.get(from..from + part.place.len as usize).ok_or(FetchError::Damaged)?;
    let plain: Box<[u8]> = match stored.len() {
        CHUNK => stored.into(),
        _ => zstd::bulk::decompress(stored, CHUNK).map_err(|_| FetchError::Damaged)?.into(),
    };
    let plain: Box<[u8; CHUNK]> = plain.try_into().map_err(|_| FetchError::Damaged)?;
    if chunks.arrived(&part.id, &plain)? { Ok(()) } else { Err(FetchError::Damaged) }
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error("a chunk is not what its hash says")]
    Damaged,
    #[error("write a chunk")]
    Write(#[from] io::Error),
}

impl FetchError {
    /// Whether it will most likely be the same the next time.
    fn is_lasting(&self) -> bool {
        use object_store::Error::NotFound;
        matches!(self, Self::Damaged | Self::Remote(RemoteError::Damaged(_) | RemoteError::Store(NotFound { .. })))
    }
}

/// Counts a question while it waits.
struct Asked<'a>(&'a AtomicUsize);

impl<'a> Asked<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Marks a window as being fetched.
struct Fetching<'a> {
    windows: &'a Mutex<HashSet<usize>>,
    first: usize,
}

impl<'a> Fetching<'a> {
    /// `None` if another fetches it.
    fn begin(windows: &'a Mutex<HashSet<usize>>, first: usize) -> Option<Self> {
        // Not with `then_some`: that makes the mark, and drops it, even where it is not wanted.
        let is_first = lock(windows).insert(first);
        is_first.then(|| Self { windows, first })
    }
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        lock(self.windows).remove(&self.first);
    }
}
