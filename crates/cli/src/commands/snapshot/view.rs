use crate::printer::{Table, View, fields, human_size, short_digest, short_duration};
use serde_json::{Value, json};
use warren_proto::http::Snapshot;

/// Snapshots of somebody, or of a sandbox.
#[derive(Debug)]
pub(super) struct SnapshotsView {
    pub(super) snapshots: Vec<Snapshot>,
    /// For ages, milliseconds since 1970.
    pub(super) now_ms: u64,
}

/// One snapshot.
#[derive(Debug)]
pub(super) struct SnapshotView {
    snapshot: Snapshot,
    /// Whether it was just taken: then a line says it.
    brief: bool,
}

impl SnapshotView {
    /// One that was just taken.
    pub(super) fn taken(snapshot: Snapshot) -> Self {
        Self { snapshot, brief: true }
    }

    /// One with everything.
    pub(super) fn whole(snapshot: Snapshot) -> Self {
        Self { snapshot, brief: false }
    }
}

impl View for SnapshotsView {
    fn table(&self) -> String {
        let mut table = Table::new(&["ID", "NAME", "SANDBOX", "IMAGE", "STATE", "STORED", "SECRETS", "DIGEST", "AGE"]);
        for snapshot in &self.snapshots {
            let age = short_duration(self.now_ms.saturating_sub(snapshot.created_at.as_ms()) / 1000);
            table.row([
                snapshot.id.clone(),
                or_dash(snapshot.name.clone()),
                snapshot.sandbox_id.clone(),
                snapshot.docker_image.clone(),
                state(snapshot),
                or_dash(snapshot.stored_bytes.map(human_size)),
                if snapshot.has_secrets { "yes" } else { "no" }.to_owned(),
                or_dash(snapshot.digest.as_deref().map(short_digest)),
                age,
            ]);
        }
        table.render()
    }

    fn json(&self) -> Value {
        json!({ "snapshots": self.snapshots })
    }

    fn ids(&self) -> Vec<String> {
        self.snapshots.iter().map(|snapshot| snapshot.id.clone()).collect()
    }
}

impl View for SnapshotView {
    fn table(&self) -> String {
        let s = &self.snapshot;
        let stored = s.stored_bytes.map(human_size);
        let paused = s.paused_ms.map(|ms| format!("{ms:.1} ms"));
        if self.brief {
            let parts = [
                Some(s.id.clone()),
                s.name.clone(),
                Some(state(s)),
                stored.map(|stored| format!("{stored} stored")),
                paused.map(|paused| format!("the sandbox stood still for {paused}")),
            ];
            let line = parts.into_iter().flatten().collect::<Vec<_>>().join("  ");
            return format!("{}\n", crate::printer::visible(&line));
        }
        let resources = format!("{} CPU, {} GB, {} GB disk", s.cpu_cores, s.memory_gb, s.disk_size_gb);
        let pairs = [
            ("id", Some(s.id.clone())),
            ("name", s.name.clone()),
            ("sandbox", Some(s.sandbox_id.clone())),
            ("state", Some(state(s))),
            ("error", s.error.clone()),
            ("image", Some(s.docker_image.clone())),
            ("image_digest", s.image_digest.clone()),
            ("resources", Some(resources)),
            ("has_secrets", Some(s.has_secrets.to_string())),
            ("paused", paused),
            ("stored", stored),
            ("digest", s.digest.clone()),
            ("user_id", Some(s.user_id.clone())),
            ("team_id", s.team_id.clone()),
            ("created_at", Some(s.created_at.to_string())),
        ];
        fields(pairs.into_iter().filter_map(|(name, value)| Some((name, value?))))
    }

    fn json(&self) -> Value {
        json!(self.snapshot)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.snapshot.id.clone()]
    }
}

fn state(snapshot: &Snapshot) -> String {
    snapshot.state.as_str().to_uppercase()
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        serde_json::from_value(json!({
            "id": "n1", "name": "a\u{1b}[2Jb", "sandboxId": "s1", "state": "READY", "dockerImage": "debian:12", "imageDigest": null,
            "cpuCores": 1.0, "memoryGB": 0.5, "diskSizeGB": 5.0, "hasSecrets": true, "pausedMs": 12.34,
            "storedBytes": 3 << 20, "digest": "sha256:0123456789abcdef", "error": null, "userId": "u1", "teamId": null,
            "createdAt": "1970-01-01T00:00:00Z",
        }))
        .expect("a snapshot")
    }

    #[test]
    fn a_list_tells_what_holds_secrets_and_what_is_the_same() {
        let view = SnapshotsView { snapshots: vec![snapshot()], now_ms: 7_200_000 };
        let row = view.table().lines().nth(1).expect("a row").to_owned();
        assert!(row.contains("a\\u{1b}[2Jb") && row.contains("READY") && row.contains("3.0 MiB"), "{row}");
        assert!(row.ends_with("yes      0123456789ab  2h"), "{row}");
        assert_eq!((view.ids(), &view.json()["snapshots"][0]["hasSecrets"]), (vec!["n1".to_owned()], &json!(true)));
    }

    #[test]
    fn what_was_taken_is_one_line_and_what_is_asked_for_is_all() {
        let line = SnapshotView::taken(snapshot()).table();
        assert_eq!(line, "n1  a\\u{1b}[2Jb  READY  3.0 MiB stored  the sandbox stood still for 12.3 ms\n");
        let all = SnapshotView::whole(snapshot()).table();
        assert!(all.contains("digest:       sha256:0123456789abcdef\n") && !all.contains("error"), "{all}");
    }
}
