//! What is left to do, from rows, observations and the time: pure.

use crate::store::{Intent, Placement};
use std::collections::HashMap;
use warren_model::{SandboxId, Status};

/// A sandbox that a node accepted and does not know is lost after this time, milliseconds. Time, because a node that was just
/// started may still be looking for what it has.
pub(crate) const MISSING_CONFIRM_MS: u64 = 5_000;
/// How long a node keeps the record of an ended sandbox, so that its data plane can say what happened, milliseconds.
pub(crate) const ENDED_KEPT_ON_NODE_MS: u64 = 120_000;

/// What the plan needs of a row of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) id: SandboxId,
    pub(crate) intent: Intent,
    pub(crate) placement: Placement,
    pub(crate) status: Status,
    pub(crate) ended_at_ms: Option<u64>,
    pub(crate) egress_generation: u64,
    /// Since when the node is seen not to know it.
    pub(crate) missing_since_ms: Option<u64>,
}

/// What the plan needs of an observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) status: Status,
    pub(crate) egress_generation: u64,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Offer it to the node; in the order of the plan, until the node is full.
    Create(SandboxId),
    /// Write down what the node says of it.
    Absorb(SandboxId),
    /// End it on the node.
    Terminate(SandboxId),
    /// Write down that the node lost it.
    Lost(SandboxId),
    /// Give the node the policy in force.
    SetEgress(SandboxId),
    /// Let the node drop its record.
    Forget(SandboxId),
}

/// Compares all of the store with all of the node. `wanted` was read before `seen`, so that what a row says was accepted is
/// in `seen` unless it is lost; it is in the order of age and contains a row for each id in `seen` that the store knows.
pub(crate) fn plan(wanted: &[Wanted], seen: &HashMap<SandboxId, Seen>, now_ms: u64) -> Vec<Action> {
    let mut actions: Vec<Action> = wanted.iter().filter_map(|row| next(row, seen.get(&row.id), now_ms)).collect();
    let known: std::collections::HashSet<&SandboxId> = wanted.iter().map(|row| &row.id).collect();
    let mut orphans: Vec<_> = seen.iter().filter(|(id, _)| !known.contains(id)).collect();
    orphans.sort_by_key(|(id, _)| *id);
    actions.extend(orphans.into_iter().map(|(id, seen)| match seen.status.is_terminal() {
        true => Action::Forget(id.clone()),
        false => Action::Terminate(id.clone()),
    }));
    actions
}

fn next(row: &Wanted, seen: Option<&Seen>, now_ms: u64) -> Option<Action> {
    let id = row.id.clone();
    let should_live = row.intent == Intent::Run && !row.status.is_terminal();
    match (should_live, seen) {
        (true, None) if row.placement == Placement::Queued => Some(Action::Create(id)),
        (true, None) => {
            let missing_ms = row.missing_since_ms.map_or(0, |since| now_ms.saturating_sub(since));
            (missing_ms >= MISSING_CONFIRM_MS).then_some(Action::Lost(id))
        }
        (true, Some(seen)) if row.placement == Placement::Queued || row.status != seen.status => {
            Some(Action::Absorb(id))
        }
        (true, Some(seen)) if takes_egress(seen.status) && seen.egress_generation < row.egress_generation => {
            Some(Action::SetEgress(id))
        }
        // The rest of an observation, such as an image's progress.
        (true, Some(_)) => Some(Action::Absorb(id)),
        (false, Some(seen)) if !seen.status.is_terminal() => Some(Action::Terminate(id)),
        (false, None) if !is_cleared(row.placement) => Some(Action::Terminate(id)),
        (false, _) => {
            let old = row.ended_at_ms.is_none_or(|at| now_ms.saturating_sub(at) >= ENDED_KEPT_ON_NODE_MS);
            let left = row.placement != Placement::Gone || seen.is_some();
            (left && old).then_some(Action::Forget(id))
        }
    }
}

fn takes_egress(status: Status) -> bool {
    matches!(status, Status::Running | Status::Paused)
}

fn is_cleared(placement: Placement) -> bool {
    matches!(placement, Placement::Cleared | Placement::Gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn row(intent: Intent, placement: Placement, status: Status) -> Wanted {
        Wanted {
            id: SandboxId::from_bits(1),
            intent,
            placement,
            status,
            ended_at_ms: status.is_terminal().then_some(NOW),
            egress_generation: 1,
            missing_since_ms: None,
        }
    }

    fn seen(status: Status) -> HashMap<SandboxId, Seen> {
        HashMap::from([(SandboxId::from_bits(1), Seen { status, egress_generation: 1 })])
    }

    fn check(row: Wanted, seen: &HashMap<SandboxId, Seen>, expected: &[fn(SandboxId) -> Action]) {
        let expected: Vec<_> = expected.iter().map(|action| action(SandboxId::from_bits(1))).collect();
        assert_eq!(plan(std::slice::from_ref(&row), seen, NOW), expected, "{row:?}");
    }

    #[test]
    fn nothing_on_the_node() {
        use {Intent::*, Placement::*};
        let none = HashMap::new();
        check(row(Run, Queued, Status::Pending), &none, &[Action::Create]);
        check(row(Run, Placed, Status::Running), &none, &[]);
        let since = |ms| Wanted { missing_since_ms: Some(NOW - ms), ..row(Run, Placed, Status::Running) };
        check(since(MISSING_CONFIRM_MS - 1), &none, &[]);
        check(since(MISSING_CONFIRM_MS), &none, &[Action::Lost]);
        check(row(End, Queued, Status::Terminated), &none, &[Action::Terminate]);
        check(row(Run, Placed, Status::Error), &none, &[Action::Terminate]);
        check(row(End, Cleared, Status::Terminated), &none, &[]);
        let old = Wanted { ended_at_ms: Some(NOW - ENDED_KEPT_ON_NODE_MS), ..row(End, Cleared, Status::Terminated) };
        check(old, &none, &[Action::Forget]);
        check(row(End, Gone, Status::Terminated), &none, &[]);
    }

    #[test]
    fn something_on_the_node() {
        use {Intent::*, Placement::*};
        check(row(Run, Queued, Status::Pending), &seen(Status::Pending), &[Action::Absorb]);
        check(row(Run, Placed, Status::Pending), &seen(Status::Running), &[Action::Absorb]);
        check(row(End, Placed, Status::Terminated), &seen(Status::Running), &[Action::Terminate]);
        check(row(End, Gone, Status::Terminated), &seen(Status::Running), &[Action::Terminate]);
        check(row(Run, Placed, Status::Error), &seen(Status::Running), &[Action::Terminate]);
        check(row(End, Placed, Status::Terminated), &seen(Status::Terminated), &[]);
        let changed = Wanted { egress_generation: 2, ..row(Run, Placed, Status::Running) };
        check(changed, &seen(Status::Running), &[Action::SetEgress]);
    }

    #[test]
    fn what_the_store_does_not_know_goes() {
        let id = SandboxId::from_bits(1);
        assert_eq!(plan(&[], &seen(Status::Running), NOW), [Action::Terminate(id.clone())]);
        assert_eq!(plan(&[], &seen(Status::Error), NOW), [Action::Forget(id)]);
    }
}
