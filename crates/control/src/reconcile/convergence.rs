//! Property: whatever is lost, doubled or reordered between store and node, and wherever a crash falls, plans bring them together.

use super::absorb::{absorb, delete, end_with};
use super::driver::{abstracted, wanted};
use super::plan::{Action, plan};
use crate::store::{Placement, SandboxRow, fixture};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use warren_model::{EndReason, SandboxId, Status};
use warren_proto::node::Observation;
use warren_proto::shim::End;

/// One thing that happens; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Event {
    Create,
    /// Creates, and crashes after the node accepted.
    CreateUnnoted,
    Delete(usize),
    /// A sandbox on the node goes one step on.
    Progress(usize),
    /// The node loses a sandbox without a word.
    Lose(usize),
    /// The next observation arrives, some place out of order.
    Deliver(usize),
    DeliverTwice(usize),
    Drop(usize),
    /// A plan of which only the first so many actions are performed before a crash.
    Plan(usize),
    Capacity(usize),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Create),
        1 => Just(Event::CreateUnnoted),
        3 => any::<usize>().prop_map(Event::Delete),
        6 => any::<usize>().prop_map(Event::Progress),
        1 => any::<usize>().prop_map(Event::Lose),
        5 => any::<usize>().prop_map(Event::Deliver),
        1 => any::<usize>().prop_map(Event::DeliverTwice),
        2 => any::<usize>().prop_map(Event::Drop),
        4 => (0..12_usize).prop_map(Event::Plan),
        1 => (0..6_usize).prop_map(Event::Capacity),
        2 => (1..200_000_u64).prop_map(Event::Wait),
    ]
}

#[derive(Default)]
struct World {
    now_ms: u64,
    rows: BTreeMap<SandboxId, SandboxRow>,
    node: HashMap<SandboxId, Observation>,
    tombstones: HashSet<SandboxId>,
    under_way: Vec<Observation>,
    capacity: usize,
    missing: HashMap<SandboxId, u64>,
    made: u128,
}

impl World {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Create | Event::CreateUnnoted => {
                self.made += 1;
                let row = SandboxRow { created_at_ms: self.now_ms, ..fixture::row(self.made) };
                let id = row.id.clone();
                self.rows.insert(id.clone(), row);
                self.offer(&id, matches!(event, Event::Create));
            }
            Event::Delete(n) => {
                if let Some(id) = nth(self.rows.keys(), n) {
                    let now = self.now_ms;
                    self.rows.get_mut(&id).map(|row| delete(row, now));
                }
            }
            Event::Progress(n) => {
                if let Some(id) = nth(self.node.keys(), n) {
                    self.progress(&id);
                }
            }
            Event::Lose(n) => {
                if let Some(id) = nth(self.node.keys(), n) {
                    self.node.remove(&id);
                    // A node loses what it had by dying, and what it said of it is lost with the connection: see `absorb`.
                    self.under_way.retain(|seen| seen.id != id);
                }
            }
            Event::Deliver(n) | Event::DeliverTwice(n) if !self.under_way.is_empty() => {
                let at = n % self.under_way.len().min(4);
                let seen = match event {
                    Event::Deliver(_) => self.under_way.remove(at),
                    _ => self.under_way[at].clone(),
                };
                self.observed(&seen);
            }
            Event::Drop(n) if !self.under_way.is_empty() => drop(self.under_way.remove(n % self.under_way.len())),
            Event::Deliver(_) | Event::DeliverTwice(_) | Event::Drop(_) => {}
            Event::Plan(actions) => {
                self.turn(actions);
            }
            Event::Capacity(capacity) => self.capacity = capacity,
            Event::Wait(ms) => self.now_ms += ms,
        }
    }

    fn observed(&mut self, seen: &Observation) {
        self.rows.get_mut(&seen.id).map(|row| absorb(row, seen));
    }

    fn alive_on_node(&self) -> usize {
        self.node.values().filter(|seen| !seen.status.is_terminal()).count()
    }

    /// What `dispatch::create` does, with or without its note; `false` if the node is full.
    fn offer(&mut self, id: &SandboxId, note: bool) -> bool {
        if !self.node.contains_key(id) && !self.tombstones.contains(id) {
            if self.alive_on_node() >= self.capacity {
                return false;
            }
            let seen = Observation {
                id: id.clone(),
                status: Status::Pending,
                image_digest: None,
                image_build: None,
                started_at_ms: None,
                end: None,
                last_oom: None,
                egress_generation: 0,
                generation: 0,
                template: None,
            };
            self.under_way.push(seen.clone());
            self.node.insert(id.clone(), seen);
        }
        if note && let Some(row) = self.rows.get_mut(id) {
            match self.tombstones.contains(id) {
                true if row.is_live() => end_with(row, EndReason::Deleted, "", self.now_ms),
                false if row.placement == Placement::Queued => row.placement = Placement::Placed,
                _ => {}
            }
        }
        true
    }

    fn progress(&mut self, id: &SandboxId) {
        let at_ms = self.now_ms;
        let Some(seen) = self.node.get_mut(id) else { return };
        match seen.status {
            Status::Pending => seen.status = Status::Provisioning,
            Status::Provisioning => seen.status = Status::Running,
            Status::Running => end_on_node(seen, EndReason::VmmDied, at_ms),
            _ => return,
        }
        self.under_way.push(seen.clone());
    }

    fn turn(&mut self, actions_max: usize) -> Vec<Action> {
        let mut rows: Vec<_> = self.rows.values().cloned().collect();
        rows.sort_by_key(|row| (row.created_at_ms, row.id.clone()));
        let wanted: Vec<_> = rows.iter().map(|row| wanted(row, &self.node, &mut self.missing, self.now_ms)).collect();
        let seen = self.node.iter().map(|(id, o)| (id.clone(), abstracted(o))).collect();
        let actions = plan(&wanted, &seen, self.now_ms);
        let mut full = false;
        for action in actions.iter().take(actions_max) {
            self.perform(action, &mut full);
        }
        actions
    }

    fn perform(&mut self, action: &Action, full: &mut bool) {
        let now_ms = self.now_ms;
        match action {
            Action::Create(id) => *full = *full || !self.offer(id, true),
            Action::Absorb(id) => {
                let seen = self.node[id].clone();
                self.observed(&seen);
            }
            Action::Terminate(id) => {
                self.tombstones.insert(id.clone());
                if let Some(seen) = self.node.get_mut(id).filter(|seen| !seen.status.is_terminal()) {
                    end_on_node(seen, EndReason::Deleted, now_ms);
                    self.under_way.push(seen.clone());
                }
                if let Some(row) = self.rows.get_mut(id).filter(|row| !row.is_live()) {
                    row.placement = Placement::Cleared;
                }
            }
            Action::Lost(id) => {
                if let Some(row) = self.rows.get_mut(id) {
                    end_with(row, EndReason::NodeLost, "", now_ms);
                }
            }
            Action::SetEgress(id) => {
                let generation = self.rows[id].egress_generation;
                if let Some(seen) = self.node.get_mut(id) {
                    seen.egress_generation = generation;
                }
            }
            Action::Forget(id) => {
                self.node.remove(id);
                if let Some(row) = self.rows.get_mut(id) {
                    row.placement = Placement::Gone;
                }
            }
        }
    }

    fn check(&self) {
        for (id, row) in &self.rows {
            let seen = self.node.get(id);
            if row.is_live() {
                match seen {
                    Some(seen) => assert_eq!(row.status, seen.status, "{id}"),
                    None => assert_eq!((row.placement, row.status), (Placement::Queued, Status::Pending), "{id}"),
                }
            } else {
                assert_eq!((row.placement, seen), (Placement::Gone, None), "{id}");
            }
        }
        assert!(self.node.keys().all(|id| self.rows.contains_key(id)), "orphans");
        let queued = self.rows.values().any(|row| row.is_live() && row.placement == Placement::Queued);
        assert!(!queued || self.alive_on_node() >= self.capacity, "room, and yet a queue");
    }
}

fn end_on_node(seen: &mut Observation, reason: EndReason, at_ms: u64) {
    seen.status = reason.status();
    seen.end = Some(End { reason, message: String::new(), at_ms, exit_code: None, logs: String::new() });
}

fn nth<'a>(ids: impl Iterator<Item = &'a SandboxId>, n: usize) -> Option<SandboxId> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort();
    (!ids.is_empty()).then(|| ids[n % ids.len()].clone())
}

/// Plans after which everything must have come together: create or notice, wait for what is missing, end, forget.
const TURNS_MAX: usize = 8;

proptest! {
    #[test]
    fn store_and_node_come_together(events in prop::collection::vec(event(), 1..120)) {
        let mut world = World { now_ms: 1_000, capacity: 4, ..World::default() };
        let mut shown: HashMap<SandboxId, Status> = HashMap::new();
        for event in events {
            world.apply(event);
            for (id, row) in &world.rows {
                // A client never sees a status that may not follow the one before: what ended stays ended.
                let before = shown.insert(id.clone(), row.status).unwrap_or(row.status);
                prop_assert!(before.may_become(row.status), "{id}: {before:?}, then {:?}", row.status);
            }
        }
        for _ in 0..TURNS_MAX {
            world.now_ms += 200_000;
            world.turn(usize::MAX);
        }
        world.check();
    }
}
