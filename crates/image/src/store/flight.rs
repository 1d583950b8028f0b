//! One piece of work for a key, however many ask for it.

use super::{Image, image_error, lock};
use crate::progress::Progress;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use warren_proto::node::ImageError;

/// What all who wait get.
pub(super) type Outcome = Result<Image, ImageError>;

/// Work under way, by key.
#[derive(Debug, Default, Clone)]
pub(super) struct Flights {
    open: Arc<Mutex<HashMap<String, Flight>>>,
}

#[derive(Debug, Clone)]
struct Flight {
    outcome: watch::Receiver<Option<Outcome>>,
    progress: Arc<Progress>,
}

impl Flights {
    /// Waits for the work of `key`, which `start` begins if there is none. The work goes on even if nobody waits any more;
    /// `progress` is that of whoever asks, and follows the work's.
    pub(super) async fn join<F>(&self, key: &str, progress: &Arc<Progress>, start: impl FnOnce() -> F) -> Outcome
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let (flight, sender) = self.enter(key, progress);
        match sender {
            Some(sender) => {
                let work = start();
                let landing = Landing { flights: self.clone(), key: key.to_owned() };
                tokio::spawn(async move {
                    let outcome = work.await;
                    // First the key goes, then the outcome comes: who asks later starts anew.
                    drop(landing);
                    sender.send_replace(Some(outcome));
                });
            }
            None => progress.follow(&flight.progress),
        }
        let mut outcome = flight.outcome;
        match outcome.wait_for(Option::is_some).await.map(|value| value.clone()) {
            Ok(Some(outcome)) => outcome,
            _ => Err(image_error(key, "failed", "the build of the image broke off; see the log".to_owned())),
        }
    }

    fn enter(&self, key: &str, progress: &Arc<Progress>) -> (Flight, Option<watch::Sender<Option<Outcome>>>) {
        let mut open = lock(&self.open);
        if let Some(flight) = open.get(key) {
            return (flight.clone(), None);
        }
        let (sender, outcome) = watch::channel(None);
        let flight = Flight { outcome, progress: progress.clone() };
        open.insert(key.to_owned(), flight.clone());
        (flight, Some(sender))
    }
}

/// Takes the key away when the work ends, also by a panic.
struct Landing {
    flights: Flights,
    key: String,
}

impl Drop for Landing {
    fn drop(&mut self) {
        lock(&self.flights.open).remove(&self.key);
    }
}
