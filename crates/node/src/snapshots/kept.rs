//! Which snapshots are needed? Pure.

use super::record::Record;
use std::collections::{BTreeMap, BTreeSet};
use warren_model::SnapshotId;

/// Those that somebody can see, those that somebody has a lease on, and all that these lie on.
pub(super) fn kept(
    known: &BTreeMap<SnapshotId, Record>,
    leased: impl Iterator<Item = SnapshotId>,
) -> BTreeSet<SnapshotId> {
    let seen = known.values().filter(|record| !record.deleted).map(|record| record.id.clone());
    let mut waiting: Vec<SnapshotId> = seen.chain(leased).collect();
    let mut kept = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if kept.insert(id.clone())
            && let Some(record) = known.get(&id)
        {
            waiting.extend(record.memory_on.iter().chain(&record.disk_on).cloned());
        }
    }
    kept
}

/// A snapshot and what it lies on by `below`, the lowest first; `None` if one of them is missing, or they lie on each other in a ring.
pub(super) fn chain<'a>(
    known: &'a BTreeMap<SnapshotId, Record>,
    top: &SnapshotId,
    below: impl Fn(&Record) -> Option<&SnapshotId>,
) -> Option<Vec<&'a Record>> {
    let mut records = vec![known.get(top)?];
    while let Some(next) = records.last().and_then(|record| below(record)) {
        if records.len() > known.len() {
            return None;
        }
        records.push(known.get(next)?);
    }
    records.reverse();
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_model::Shape;

    fn id(name: &str) -> SnapshotId {
        SnapshotId::parse(name).unwrap()
    }

    fn records(lines: &[(&str, Option<&str>, Option<&str>, bool)]) -> BTreeMap<SnapshotId, Record> {
        let record = |&(name, memory_on, disk_on, deleted): &(&str, Option<&str>, Option<&str>, bool)| Record {
            id: id(name),
            sandbox: "sa".into(),
            image_digest: String::new(),
            shape: Shape { vcpus: 1, memory_mib: 256 },
            disk_bytes: 1,
            created_at_ms: 1,
            paused_ms: 1.0,
            template: String::new(),
            memory_on: memory_on.map(id),
            disk_on: disk_on.map(id),
            layers: 1,
            lent: Vec::new(),
            flows: Default::default(),
            has_start_command: false,
            stored_bytes: 1,
            boot: String::new(),
            digest: None,
            delta_sum: None,
            flat_sum: None,
            offered: None,
            deleted,
        };
        lines.iter().map(|line| (id(line.0), record(line))).collect()
    }

    #[test]
    fn a_deleted_one_stays_while_something_lies_on_it() {
        let known = records(&[
            ("aa", None, None, true),
            ("bb", Some("aa"), Some("aa"), true),
            ("cc", Some("bb"), Some("bb"), false),
            ("dd", Some("aa"), None, true),
            ("ee", None, None, true),
        ]);
        let names = |set: BTreeSet<SnapshotId>| set.iter().map(SnapshotId::to_string).collect::<Vec<_>>();
        assert_eq!(names(kept(&known, std::iter::empty())), ["aa", "bb", "cc"]);
        assert_eq!(names(kept(&known, [id("dd")].into_iter())), ["aa", "bb", "cc", "dd"]);
    }

    #[test]
    fn chains_end_at_the_bottom_and_a_ring_is_none() {
        let known = records(&[
            ("aa", None, None, false),
            ("bb", Some("aa"), None, false),
            ("cc", Some("bb"), Some("zz"), false),
            ("ring", Some("ring"), None, false),
        ]);
        let memory = |top| chain(&known, &id(top), |record| record.memory_on.as_ref());
        let names: Vec<String> = memory("cc").unwrap().iter().map(|record| record.id.to_string()).collect();
        assert_eq!(names, ["aa", "bb", "cc"]);
        assert!(memory("ring").is_none() && memory("zz").is_none());
        assert!(chain(&known, &id("cc"), |record| record.disk_on.as_ref()).is_none());
    }
}
