//! When registries were asked last about which name, and for whom. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Names that are remembered; when there are more, all are forgotten, and asked about again.
const NAMES_MAX: usize = 65_536;

/// Times of answers.
#[derive(Debug, Default)]
pub(super) struct Asked {
    at: HashMap<(Option<String>, String), Instant>,
}

impl Asked {
    /// The registry answered, for an owner of a saved login or for everybody.
    pub(super) fn note(&mut self, scope: Option<&str>, name: &str, now: Instant) {
        if self.at.len() >= NAMES_MAX {
            self.at.clear();
        }
        self.at.insert((scope.map(str::to_owned), name.to_owned()), now);
    }

    /// Time since the last answer, if there was one.
    pub(super) fn age(&self, scope: Option<&str>, name: &str, now: Instant) -> Option<Duration> {
        let at = self.at.get(&(scope.map(str::to_owned), name.to_owned()))?;
        Some(now.saturating_duration_since(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_was_told_is_not_known_to_another() {
        let (mut asked, now) = (Asked::default(), Instant::now());
        asked.note(Some("user:alice"), "a:1", now);
        let later = now + Duration::from_secs(5);
        assert_eq!(asked.age(Some("user:alice"), "a:1", later), Some(Duration::from_secs(5)));
        assert_eq!(asked.age(Some("user:bob"), "a:1", later), None);
        assert_eq!(asked.age(None, "a:1", later), None);
    }
}
