//! What a shim's state becomes with each event. Pure; `driver` waits and acts.
//!
//! ```text
//!  EMPTY ──boot──► STARTING ──started──► RUNNING
//!    │                │                     │
//!    └── no boot ─────┴── failed, died, ────┴──► ENDED
//!        in time          terminate
//! ```

use warren_proto::shim::{End, Phase, ShimState};

/// Something that happened to a sandbox.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A boot was asked for.
    Boot,
    /// The guest takes requests.
    Started { now_ms: u64, steps_ms: std::collections::BTreeMap<String, f64> },
    /// QEMU has been spawned.
    Spawned { pid: Option<u32> },
    /// The guest killed something for lack of memory; `kills` counts all so far.
    OutOfMemory { kills: u64, last: Option<String> },
    /// A policy is in force.
    Egress { generation: u64 },
    /// It is over.
    Ended(End),
}

/// The state before any event.
pub(crate) fn empty() -> ShimState {
    ShimState {
        version: 1,
        phase: Phase::Empty,
        running_since_ms: None,
        end: None,
        egress_generation: 0,
        oom_kills: 0,
        last_oom: None,
        steps_ms: Default::default(),
        vmm_pid: None,
    }
}

/// Applies one event; `false` if it changes nothing, because the state has moved on.
pub(crate) fn apply(state: &mut ShimState, event: Event) -> bool {
    let changed = match (state.phase, event) {
        (Phase::Ended, _) => false,
        (Phase::Empty, Event::Boot) => {
            state.phase = Phase::Starting;
            true
        }
        (Phase::Starting, Event::Started { now_ms, steps_ms }) => {
            state.phase = Phase::Running;
            state.running_since_ms = Some(now_ms);
            state.steps_ms = steps_ms;
            true
        }
        (_, Event::Spawned { pid }) => std::mem::replace(&mut state.vmm_pid, pid) != pid,
        (_, Event::OutOfMemory { kills, last }) if kills > state.oom_kills => {
            state.oom_kills = kills;
            state.last_oom = last.or_else(|| Some("a process was killed for lack of memory".to_owned()));
            true
        }
        (_, Event::Egress { generation }) => std::mem::replace(&mut state.egress_generation, generation) != generation,
        (_, Event::Ended(end)) => {
            state.phase = Phase::Ended;
            state.end = Some(end);
            state.vmm_pid = None;
            true
        }
        _ => false,
    };
    if changed {
        state.version += 1;
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_model::EndReason;

    fn end(reason: EndReason) -> Event {
        Event::Ended(End { reason, message: String::new(), at_ms: 1, exit_code: None, logs: String::new() })
    }

    #[test]
    fn a_life() {
        let mut state = empty();
        for event in
            [Event::Boot, Event::Spawned { pid: Some(7) }, Event::Started { now_ms: 5, steps_ms: Default::default() }]
        {
            assert!(apply(&mut state, event));
        }
        assert_eq!((state.phase, state.running_since_ms, state.version), (Phase::Running, Some(5), 4));
        assert!(apply(&mut state, end(EndReason::Deleted)));
        assert_eq!(state.vmm_pid, None);
    }

    #[test]
    fn the_first_end_stays() {
        let mut state = empty();
        assert!(apply(&mut state, end(EndReason::Timeout)));
        let before = state.clone();
        for event in [Event::Boot, end(EndReason::VmmDied), Event::Egress { generation: 9 }] {
            assert!(!apply(&mut state, event));
        }
        assert_eq!(state, before);
    }

    #[test]
    fn a_second_boot_and_a_late_start_change_nothing() {
        let mut state = empty();
        assert!(!apply(&mut state, Event::Started { now_ms: 1, steps_ms: Default::default() }));
        assert!(apply(&mut state, Event::Boot));
        assert!(!apply(&mut state, Event::Boot));
    }
}
