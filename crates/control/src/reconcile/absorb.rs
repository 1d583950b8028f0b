//! What an observation of a node changes in a row.

use crate::store::{Intent, Placement, SandboxRow};
use warren_model::{EndReason, Status};
use warren_proto::node::Observation;
use warren_proto::shim::End;

/// Longest output that is kept of an ended sandbox, bytes; the end of it.
const LOGS_LEN_MAX: usize = 1 << 20;

/// Applies `seen` to `row`; answers whether anything changed.
///
/// Observations may come late, twice, or in the wrong order: a status that may not follow the row's is ignored, and what a
/// deleted sandbox still does changes nothing but its last words. They are of the node's present life: one that a node said before it
/// died and forgot the sandbox must not come after the sandbox was offered anew, or the row would run ahead of the node until it
/// catches up. Here both live in one process; a connection to a node elsewhere has to drop what an earlier one still carries.
pub(crate) fn absorb(row: &mut SandboxRow, seen: &Observation) -> bool {
    let before = row.clone();
    if row.is_live() {
        live(row, seen);
    }
    last_words(row, seen);
    *row != before
}

fn live(row: &mut SandboxRow, seen: &Observation) {
    if !row.status.may_become(seen.status) {
        return;
    }
    row.status = seen.status;
    if row.placement == Placement::Queued {
        row.placement = Placement::Placed;
    }
    row.image_build_id = seen.image_build.as_ref().map(|build| build.id.clone());
    row.started_at_ms = row.started_at_ms.or(seen.started_at_ms);
    row.generation = row.generation.max(seen.generation);
    if row.template_id.is_none() {
        row.template_id.clone_from(&seen.template);
    }
    row.egress_applied = row.egress_applied.max(seen.egress_generation.min(row.egress_generation));
    match &seen.end {
        Some(end) => ended(row, end),
        None => {
            if let Some(oom) = &seen.last_oom {
                row.error_type = seen.error_type().map(|kind| kind.as_str().to_owned());
                row.error_message = Some(oom.clone());
            }
            if seen.status.is_terminal() {
                // A node that names no end: the status alone must do.
                row.ended_at_ms = Some(row.updated_at_ms);
            }
        }
    }
}

fn ended(row: &mut SandboxRow, end: &End) {
    end_with(row, end.reason, &end.message, end.at_ms);
}

/// Ends a live row for `reason`. Its end is never before its start.
pub(crate) fn end_with(row: &mut SandboxRow, reason: EndReason, message: &str, at_ms: u64) {
    row.status = reason.status();
    row.error_type = reason.error_type().map(|kind| kind.as_str().to_owned());
    row.error_message = row.error_type.is_some().then(|| message.to_owned());
    row.termination_reason = Some(message.to_owned());
    row.infra_fault = reason.infra_fault();
    row.ended_at_ms = Some(at_ms.max(row.created_at_ms));
    row.image_build_id = None;
    // Nothing will need them again.
    row.secrets = None;
}

/// Ends a row because a client deleted it: at once in the store, whatever the node still has to do.
pub(crate) fn delete(row: &mut SandboxRow, now_ms: u64) -> bool {
    if !row.is_live() {
        return false;
    }
    row.intent = Intent::End;
    end_with(row, EndReason::Deleted, "deleted by a client", now_ms);
    row.status == Status::Terminated
}

fn last_words(row: &mut SandboxRow, seen: &Observation) {
    if row.image_digest.is_none() {
        row.image_digest.clone_from(&seen.image_digest);
    }
    let Some(end) = &seen.end else { return };
    row.exit_code = row.exit_code.or(end.exit_code);
    if row.logs.is_none() && !end.logs.is_empty() {
        row.logs = Some(tail(&end.logs, LOGS_LEN_MAX).to_owned());
    }
}

/// The last `len_max` bytes of `text` or a few less, cut between characters.
fn tail(text: &str, len_max: usize) -> &str {
    let mut from = text.len().saturating_sub(len_max);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixture;

    fn seen(status: Status) -> Observation {
        let row = fixture::row(1);
        Observation {
            id: row.id,
            status,
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

    fn end(reason: EndReason) -> Observation {
        let end = End { reason, message: "why".into(), at_ms: 9, exit_code: Some(3), logs: "out".into() };
        Observation { end: Some(end), ..seen(reason.status()) }
    }

    #[test]
    fn a_life_in_order_and_late_news_after_it() {
        let mut row = fixture::row(1);
        assert!(absorb(&mut row, &seen(Status::Provisioning)));
        assert!(absorb(&mut row, &Observation { started_at_ms: Some(5), ..seen(Status::Running) }));
        assert!(!absorb(&mut row, &seen(Status::Provisioning)), "late");
        assert_eq!((row.status, row.started_at_ms, row.placement), (Status::Running, Some(5), Placement::Placed));
        assert!(absorb(&mut row, &end(EndReason::VmmDied)));
        assert!(!absorb(&mut row, &end(EndReason::VmmDied)), "twice");
        assert!(!absorb(&mut row, &seen(Status::Running)), "late");
        assert_eq!(row.error_type.as_deref(), Some("VMM_DIED"));
        assert!(row.infra_fault && row.secrets.is_none());
    }

    #[test]
    fn a_delete_beats_what_the_node_says_but_keeps_its_last_words() {
        let mut row = fixture::row(1);
        assert!(delete(&mut row, 7));
        assert!(!delete(&mut row, 8));
        assert!(!absorb(&mut row, &seen(Status::Running)));
        assert!(absorb(&mut row, &end(EndReason::OutOfMemory)));
        assert_eq!((row.status, row.error_type, row.logs.as_deref()), (Status::Terminated, None, Some("out")));
    }

    #[test]
    fn an_oom_kill_shows_while_it_runs_and_a_late_end_explains_more() {
        let mut row = fixture::row(1);
        absorb(&mut row, &Observation { last_oom: Some("python".into()), ..seen(Status::Running) });
        assert_eq!(row.error_type.as_deref(), Some("OOM_KILLED"));
        absorb(&mut row, &end(EndReason::Timeout));
        assert_eq!((row.status, row.error_type.as_deref()), (Status::Timeout, Some("TIMEOUT")));
    }

    #[test]
    fn the_tail_is_cut_between_characters() {
        assert_eq!(tail("abc", 5), "abc");
        assert_eq!(tail("aäb", 2), "b");
        assert_eq!(tail("aäb", 3), "äb");
    }
}
