//! When does a running sandbox end by itself? Pure.

use std::time::Duration;
use warren_model::EndReason;

/// What decides it. All times in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clocks {
    /// First RUNNING.
    pub(crate) started_at_ms: u64,
    /// RUNNING since the last reset or resume, or the first one.
    pub(crate) machine_since_ms: u64,
    /// Operations that run now.
    pub(crate) active: u64,
    /// End of the last operation.
    pub(crate) last_activity_ms: u64,
}

/// The next end by itself, and when, unless something happens before: `None` is never.
pub(crate) fn next(timeout: Option<Duration>, idle: Option<Duration>, clocks: Clocks) -> Option<(u64, EndReason)> {
    let after = |from: u64, d: Duration| from.saturating_add(u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
    let lifetime = timeout.map(|d| (after(clocks.started_at_ms, d), EndReason::Timeout));
    let idle = idle
        .filter(|_| clocks.active == 0)
        .map(|d| (after(clocks.last_activity_ms.max(clocks.machine_since_ms), d), EndReason::Idle));
    match (lifetime, idle) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn clocks(active: u64, last_activity_ms: u64) -> Clocks {
        Clocks { started_at_ms: 1_000, machine_since_ms: 1_000, active, last_activity_ms }
    }

    #[test]
    fn unlimited_never_ends() {
        assert_eq!(next(None, None, clocks(0, 0)), None);
    }

    #[test]
    fn idle_counts_from_the_last_operation_and_never_while_one_runs() {
        assert_eq!(next(None, Some(MINUTE), clocks(0, 5_000)), Some((65_000, EndReason::Idle)));
        assert_eq!(next(None, Some(MINUTE), clocks(0, 0)), Some((61_000, EndReason::Idle)));
        assert_eq!(next(None, Some(MINUTE), clocks(1, 5_000)), None);
    }

    #[test]
    fn the_sooner_wins_and_lifetime_wins_a_tie() {
        assert_eq!(next(Some(2 * MINUTE), Some(MINUTE), clocks(0, 1_000)), Some((61_000, EndReason::Idle)));
        assert_eq!(next(Some(MINUTE), Some(MINUTE), clocks(0, 1_000)), Some((61_000, EndReason::Timeout)));
        assert_eq!(next(Some(Duration::MAX), None, clocks(0, 0)), Some((u64::MAX, EndReason::Timeout)));
    }

    #[test]
    fn a_machine_of_a_later_turn_is_idle_from_its_own_start_and_lives_from_the_first() {
        let resumed = Clocks { machine_since_ms: 200_000, ..clocks(0, 5_000) };
        assert_eq!(next(None, Some(MINUTE), resumed), Some((260_000, EndReason::Idle)));
        assert_eq!(next(Some(3 * MINUTE), None, resumed), Some((181_000, EndReason::Timeout)));
    }
}
