//! Which checkpoints may be deleted. Pure.

use crate::store::{CheckpointRow, CheckpointStage};

/// Why one may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undeletable {
    #[error("it is still PENDING: wait until it is DURABLE or FAILED")]
    Pending,
    #[error("it is what its volume leads to: publish another version or delete the volume")]
    Head,
    #[error("it is the newest of a sandbox that lives: delete the sandbox first")]
    Tip,
}

/// Whether a checkpoint may be deleted; `of_sandbox` are all of its sandbox, the oldest first, and `lives` tells whether that still runs.
/// What is below a running sandbox or another checkpoint may go: both have all that they need.
pub(crate) fn deletable(row: &CheckpointRow, of_sandbox: &[CheckpointRow], lives: bool) -> Result<(), Undeletable> {
    let is_tip =
        || of_sandbox.iter().rfind(|other| other.stage != CheckpointStage::Failed).is_some_and(|tip| tip.id == row.id);
    match row.stage {
        CheckpointStage::Pending => Err(Undeletable::Pending),
        _ if lives && is_tip() => Err(Undeletable::Tip),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CheckpointStage::{Durable, Failed, Pending};
    use warren_model::CheckpointId;

    fn row(id: &str, stage: CheckpointStage) -> CheckpointRow {
        CheckpointRow {
            id: CheckpointId::parse(id).unwrap(),
            sandbox_id: "s1".into(),
            user_id: "u1".into(),
            team_id: None,
            volume_id: None,
            parent_id: None,
            depth: 0,
            docker_image: "busybox".into(),
            stage,
            made: None,
            error: None,
            created_at_ms: 1,
            updated_at_ms: 1,
        }
    }

    #[test]
    fn the_newest_that_did_not_fail_stays_while_its_sandbox_lives() {
        let all = [row("k1", Durable), row("k2", Durable), row("k3", Failed)];
        let may = |at: usize, lives| deletable(&all[at], &all, lives);
        assert_eq!([may(0, true), may(1, true), may(2, true)], [Ok(()), Err(Undeletable::Tip), Ok(())]);
        assert_eq!(may(1, false), Ok(()));
    }

    #[test]
    fn a_pending_one_stays_whatever_its_sandbox_does() {
        let all = [row("k1", Durable), row("k2", Pending)];
        assert_eq!(deletable(&all[0], &all, true), Ok(()));
        assert_eq!(deletable(&all[1], &all, false), Err(Undeletable::Pending));
    }
}
