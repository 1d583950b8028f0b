//! When a registry that is too busy, or broken, is asked again. Pure.

use std::time::Duration;

/// Tries of a request that the registry breaks at.
const BROKEN_TRIES_MAX: u32 = 4;
/// Wait before the second try; it doubles.
const FIRST: Duration = Duration::from_millis(500);
/// Longest wait before a try of one's own accord.
const OWN_MAX: Duration = Duration::from_secs(30);
/// HTTP's "too many requests".
const TOO_MANY: u16 = 429;

/// The tries of one request.
#[derive(Debug)]
pub(super) struct Backoff {
    tried: u32,
    limited: Duration,
    limited_max: Duration,
}

impl Backoff {
    /// For a request that waits at most `limited_max` in all while the rate of requests is limited.
    pub(super) fn new(limited_max: Duration) -> Self {
        Self { tried: 0, limited: Duration::ZERO, limited_max }
    }

    /// Number of the next try, from 1.
    pub(super) fn attempt(&self) -> u32 {
        self.tried + 1
    }

    /// How long to wait after an answer with `status`, before which the registry `asked` to be left alone for so long. `None`:
    /// it is the last answer. `random` is from 0 to 1: those who were refused together must not come back together.
    pub(super) fn after(&mut self, status: u16, asked: Option<Duration>, random: f64) -> Option<Duration> {
        self.tried += 1;
        let own = FIRST.saturating_mul(2u32.saturating_pow(self.tried - 1)).min(OWN_MAX);
        let jitter = own.mul_f64(random / 2.0);
        let wait = asked.unwrap_or(own / 2).saturating_add(jitter);
        match status {
            TOO_MANY if self.limited.saturating_add(wait) <= self.limited_max => {
                self.limited += wait;
                Some(wait)
            }
            500..=599 if self.tried < BROKEN_TRIES_MAX => Some(wait.min(own)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_limit_is_waited_for_as_long_as_it_asks_and_no_longer_than_allowed() {
        let asked = Some(Duration::from_secs(20));
        let mut backoff = Backoff::new(MINUTE);
        for random in [0.0, 1.0] {
            let wait = backoff.after(429, asked, random).unwrap();
            assert!(wait >= Duration::from_secs(20) && wait < Duration::from_secs(22), "{wait:?}");
        }
        assert_eq!(backoff.attempt(), 3);
        assert_eq!(backoff.after(429, asked, 0.0), None);
        assert_eq!(Backoff::new(MINUTE).after(429, Some(Duration::from_secs(3600)), 0.0), None);
    }

    #[test]
    fn waits_grow_and_are_bounded_in_sum() {
        let mut backoff = Backoff::new(10 * MINUTE);
        let waits: Vec<_> = std::iter::from_fn(|| backoff.after(429, None, 0.5)).take(100).collect();
        assert!(waits[0] < waits[1] && waits[1] < waits[2], "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= OWN_MAX) && waits.iter().sum::<Duration>() <= 10 * MINUTE);
        assert!(waits.len() > 10 && waits.len() < 100);
    }

    #[test]
    fn a_broken_registry_is_asked_a_few_times() {
        let mut backoff = Backoff::new(MINUTE);
        let waits: Vec<_> = std::iter::from_fn(|| backoff.after(503, Some(MINUTE), 1.0)).collect();
        assert_eq!(waits.len(), 3);
        assert!(waits.iter().sum::<Duration>() < Duration::from_secs(5), "{waits:?}");
        assert_eq!(Backoff::new(MINUTE).after(404, None, 1.0), None);
    }
}
