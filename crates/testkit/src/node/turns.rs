//! What a sandbox of the simulated node is put through while it lives.

use super::{SimNode, now_ms};
use warren_model::{EndReason, SandboxId, SnapshotId, Status};
use warren_proto::node::{Observation, SnapshotError};
use warren_proto::shim::End;

impl SimNode {
    pub(super) fn own_snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<(), SnapshotError> {
        match self.lock().snapshots.get(snapshot) {
            Some(info) if info.sandbox == *id => Ok(()),
            _ => Err(SnapshotError::NoSnapshot(snapshot.clone())),
        }
    }

    /// Changes what is seen of a sandbox whose status is among `from`.
    pub(super) fn turn(
        &self,
        id: &SandboxId,
        from: &[Status],
        change: impl FnOnce(&mut Observation),
    ) -> Result<(), SnapshotError> {
        let mut state = self.lock();
        let sandbox = state.sandboxes.get_mut(id).ok_or_else(|| SnapshotError::NoSandbox(id.clone()))?;
        expect(&sandbox.seen, from)?;
        change(&mut sandbox.seen);
        self.tell(&sandbox.seen);
        Ok(())
    }
}

pub(super) fn expect(seen: &Observation, status: &[Status]) -> Result<(), SnapshotError> {
    if status.contains(&seen.status) {
        return Ok(());
    }
    let problem = "as simulated".to_owned();
    Err(SnapshotError::Conflict { id: seen.id.clone(), status: seen.status, problem })
}

pub(super) fn end(seen: &mut Observation, reason: EndReason, message: &str) {
    seen.status = reason.status();
    seen.image_build = None;
    let logs = format!("simulated last output of {}\n", seen.id);
    seen.end = Some(End { reason, message: message.to_owned(), at_ms: now_ms(), exit_code: None, logs });
}
