use super::Uuid;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;
use warren_proto::guest::command_session::limits::REPEAT_KNOWN_SECS;

/// Requests remembered for one session: with more than that within ten minutes, the oldest are forgotten early (a client
/// repeats within 92 seconds, so this allows about 90 requests a second).
const REMEMBERED_MAX: usize = 8192;

/// Remembers requests by their UUID, with what became of them, so that a repeated one is not applied again.
pub(super) struct Repeats<T> {
    known: HashMap<Uuid, T>,
    order: VecDeque<(Instant, Uuid)>,
}

impl<T: Clone> Repeats<T> {
    pub(super) fn new() -> Self {
        Self { known: HashMap::new(), order: VecDeque::new() }
    }

    /// What was stored with a request, if it is known.
    pub(super) fn find(&self, uuid: Uuid) -> Option<T> {
        self.known.get(&uuid).cloned()
    }

    /// Adds a request; where it is known already, changes nothing and answers what was stored with it.
    pub(super) fn add(&mut self, uuid: Uuid, value: T, now: Instant) -> Option<T> {
        self.forget_old(now);
        let known = self.find(uuid);
        if known.is_none() {
            self.known.insert(uuid, value);
            self.order.push_back((now, uuid));
        }
        known
    }

    /// Forgets all but the newest `count`.
    pub(super) fn keep(&mut self, count: usize) {
        while self.order.len() > count {
            self.forget_oldest();
        }
        self.known.shrink_to_fit();
        self.order.shrink_to_fit();
    }

    fn forget_oldest(&mut self) {
        if let Some((_, uuid)) = self.order.pop_front() {
            self.known.remove(&uuid);
        }
    }

    fn forget_old(&mut self, now: Instant) {
        let kept = Duration::from_secs(REPEAT_KNOWN_SECS);
        while let Some(&(at, _)) = self.order.front() {
            if self.order.len() < REMEMBERED_MAX && now.duration_since(at) < kept {
                return;
            }
            self.forget_oldest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_request_is_known_for_ten_minutes() {
        let start = Instant::now();
        let mut repeats = Repeats::new();
        assert_eq!(repeats.add(Uuid(1), 'a', start), None);
        assert_eq!(repeats.add(Uuid(1), 'b', start + Duration::from_secs(599)), Some('a'));
        assert_eq!(repeats.add(Uuid(2), 'c', start + Duration::from_secs(599)), None);
        assert_eq!(repeats.add(Uuid(1), 'd', start + Duration::from_secs(601)), None);
    }

    #[test]
    fn the_number_remembered_is_bounded() {
        let start = Instant::now();
        let mut repeats = Repeats::new();
        for n in 0..20_000 {
            assert_eq!(repeats.add(Uuid(n), (), start), None);
        }
        assert!(repeats.known.len() <= REMEMBERED_MAX && repeats.order.len() == repeats.known.len());
        repeats.keep(2);
        assert_eq!((repeats.find(Uuid(19_997)), repeats.find(Uuid(19_998)), repeats.known.len()), (None, Some(()), 2));
    }
}
