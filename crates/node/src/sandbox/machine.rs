//! What the observation of a sandbox becomes with each event. Pure. The diagram is at [`warren_model::Status`].

use warren_model::{SandboxId, SnapshotId, Status};
use warren_proto::node::{ImageBuild, Observation};
use warren_proto::shim::{End, Phase, ShimState};

/// Something that happened to a sandbox.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// Its image is being made ready.
    ImageBuild(Option<ImageBuild>),
    /// Its image is ready.
    ImageReady { digest: String },
    /// It goes on from an app template.
    FromTemplate(SnapshotId),
    /// Its machine is being started.
    Provisioning,
    /// Its shim said how it is.
    Shim(ShimState),
    /// It has no machine any more, and will go on.
    Paused { started_at_ms: Option<u64> },
    /// It has another machine than before.
    Resumed { generation: u64, started_at_ms: Option<u64> },
    /// It is over and nothing of it is left.
    Ended(End),
}

/// The observation of a sandbox that has just been accepted.
pub(crate) fn pending(id: SandboxId) -> Observation {
    Observation {
        id,
        status: Status::Pending,
        image_digest: None,
        image_build: None,
        started_at_ms: None,
        end: None,
        last_oom: None,
        egress_generation: 0,
        generation: 0,
        template: None,
    }
}

/// Applies one event; `false` if it changes nothing.
pub(crate) fn apply(seen: &mut Observation, event: Event) -> bool {
    let before = seen.clone();
    if before.status.is_terminal() {
        return false;
    }
    match event {
        Event::ImageBuild(build) => seen.image_build = build,
        Event::ImageReady { digest } => {
            seen.image_digest = Some(digest);
            seen.image_build = None;
        }
        Event::FromTemplate(id) => seen.template = Some(id),
        Event::Provisioning => become_if_legal(seen, Status::Provisioning),
        Event::Shim(state) => {
            seen.last_oom = state.last_oom.or(seen.last_oom.take());
            seen.egress_generation = state.egress_generation;
            // The end of a machine is told by `Ended`, once its remains are gone.
            if state.phase == Phase::Running {
                seen.started_at_ms = seen.started_at_ms.or(state.running_since_ms);
                become_if_legal(seen, Status::Running);
            }
        }
        Event::Paused { started_at_ms } => {
            // A node that finds a paused sandbox at its start knows it as pending.
            seen.started_at_ms = seen.started_at_ms.or(started_at_ms);
            seen.status = Status::Paused;
        }
        Event::Resumed { generation, started_at_ms } => {
            seen.started_at_ms = seen.started_at_ms.or(started_at_ms);
            seen.generation = generation;
            become_if_legal(seen, Status::Running);
        }
        Event::Ended(end) => {
            seen.image_build = None;
            become_if_legal(seen, end.reason.status());
            seen.end = Some(end);
        }
    }
    *seen != before
}

fn become_if_legal(seen: &mut Observation, next: Status) {
    if seen.status.may_become(next) {
        seen.status = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_model::EndReason;

    fn shim(phase: Phase) -> Event {
        Event::Shim(ShimState {
            version: 1,
            phase,
            running_since_ms: (phase == Phase::Running).then_some(5),
            end: None,
            egress_generation: 3,
            oom_kills: 0,
            last_oom: None,
            steps_ms: Default::default(),
            vmm_pid: None,
        })
    }

    #[test]
    fn a_life() {
        let mut seen = pending(SandboxId::from_bits(1));
        assert!(apply(&mut seen, Event::ImageReady { digest: "sha256:1".into() }));
        assert!(apply(&mut seen, Event::Provisioning));
        assert!(!apply(&mut seen, Event::Provisioning));
        assert!(apply(&mut seen, shim(Phase::Running)));
        assert_eq!((seen.status, seen.started_at_ms, seen.egress_generation), (Status::Running, Some(5), 3));
        assert!(!apply(&mut seen, Event::Provisioning), "nothing goes back");
        let end =
            End { reason: EndReason::Timeout, message: String::new(), at_ms: 9, exit_code: None, logs: String::new() };
        assert!(apply(&mut seen, Event::Ended(end)));
        assert_eq!(seen.status, Status::Timeout);
        assert!(!apply(&mut seen, shim(Phase::Running)), "the dead stay dead");
    }
}
