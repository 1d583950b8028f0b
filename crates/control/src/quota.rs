//! May a user have one more sandbox?

use warren_proto::http::KeyLimits;

/// An hour, milliseconds.
pub(crate) const HOUR_MS: u64 = 3_600_000;

/// What a user and the key in use may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Live sandboxes of the user.
    pub(crate) user_live_max: Option<u64>,
    /// Limits of the key, on top of that.
    pub(crate) key: KeyLimits,
}

/// What they have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Live sandboxes of the user.
    pub(crate) user_live: u64,
    /// Live sandboxes that the key made.
    pub(crate) key_live: u64,
    /// vCPUs of those.
    pub(crate) key_vcpus: u64,
    /// Sandboxes that the key made within the last hour.
    pub(crate) key_made_last_hour: u64,
}

impl Quota {
    /// The limit that one more sandbox of `vcpus` would break, in words.
    pub(crate) fn exceeded_by(&self, usage: &Usage, vcpus: u64) -> Option<&'static str> {
        let above = |max: Option<u64>, wanted: u64| max.is_some_and(|max| wanted > max);
        let checks = [
            (self.user_live_max, usage.user_live + 1, "live sandboxes of this account"),
            (self.key.max_concurrent_sandboxes, usage.key_live + 1, "live sandboxes of this API key"),
            (self.key.max_sandbox_cpu_cores, usage.key_vcpus + vcpus, "vCPUs of this API key"),
            (
                self.key.max_sandbox_creations_per_hour,
                usage.key_made_last_hour + 1,
                "sandboxes made with this API key in an hour",
            ),
        ];
        checks.into_iter().find(|(max, wanted, _)| above(*max, *wanted)).map(|(_, _, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_inclusive() {
        let usage = Usage { user_live: 3, key_live: 2, key_vcpus: 4, key_made_last_hour: 9 };
        let quota = |user, live, vcpus, made| Quota {
            user_live_max: user,
            key: KeyLimits {
                max_concurrent_sandboxes: live,
                max_sandbox_cpu_cores: vcpus,
                max_sandbox_creations_per_hour: made,
                ..KeyLimits::default()
            },
        };
        assert_eq!(quota(None, None, None, None).exceeded_by(&usage, 64), None);
        assert_eq!(quota(Some(4), Some(3), Some(6), Some(10)).exceeded_by(&usage, 2), None);
        assert!(quota(Some(3), None, None, None).exceeded_by(&usage, 1).is_some_and(|what| what.contains("account")));
        assert!(quota(None, Some(2), None, None).exceeded_by(&usage, 1).is_some());
        assert!(quota(None, None, Some(5), None).exceeded_by(&usage, 2).is_some_and(|what| what.contains("vCPUs")));
        assert!(quota(None, None, None, Some(9)).exceeded_by(&usage, 1).is_some_and(|what| what.contains("hour")));
        assert!(quota(Some(0), None, None, None).exceeded_by(&Usage::default(), 1).is_some());
    }
}
