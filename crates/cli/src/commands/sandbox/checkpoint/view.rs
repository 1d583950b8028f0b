use crate::printer::{Table, View, fields, human_size, short_duration};
use serde_json::{Value, json};
use warren_proto::http::{Checkpoint, CheckpointWord, Checkpoints};

/// The checkpoints of a sandbox, in the JSON that `prime sandbox checkpoint list -o json` prints.
#[derive(Debug)]
pub(super) struct CheckpointsView {
    pub(super) list: Checkpoints,
    /// For ages, milliseconds since 1970.
    pub(super) now_ms: u64,
}

/// One checkpoint with everything.
#[derive(Debug)]
pub(super) struct CheckpointView {
    pub(super) checkpoint: Checkpoint,
}

impl View for CheckpointsView {
    fn table(&self) -> String {
        let mut table = Table::new(&["ID", "STATE", "DEPTH", "PARENT", "SIZE", "STORED", "IMAGE", "AGE"]);
        for checkpoint in &self.list.checkpoints {
            let age = short_duration(self.now_ms.saturating_sub(checkpoint.created_at.as_ms()) / 1000);
            let is_known = checkpoint.state == CheckpointWord::Durable;
            let shown = |bytes: u64| if is_known { human_size(bytes) } else { "-".to_owned() };
            table.row([
                checkpoint.id.clone(),
                word(checkpoint.state),
                checkpoint.depth.to_string(),
                checkpoint.parent_id.clone().unwrap_or_else(|| "-".to_owned()),
                shown(checkpoint.occupied_bytes),
                shown(checkpoint.stored_bytes.unwrap_or_default()),
                checkpoint.docker_image.clone(),
                age,
            ]);
        }
        table.render()
    }

    fn json(&self) -> Value {
        json!({ "checkpoints": self.list.checkpoints })
    }

    fn ids(&self) -> Vec<String> {
        self.list.checkpoints.iter().map(|checkpoint| checkpoint.id.clone()).collect()
    }
}

impl View for CheckpointView {
    fn table(&self) -> String {
        let Value::Object(all) = json!(self.checkpoint) else { return String::new() };
        fields(all.iter().filter_map(|(name, value)| match value {
            Value::Null => None,
            Value::String(text) => Some((name.as_str(), text.clone())),
            other => Some((name.as_str(), other.to_string())),
        }))
    }

    fn json(&self) -> Value {
        json!(self.checkpoint)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.checkpoint.id.clone()]
    }
}

fn word(state: CheckpointWord) -> String {
    json!(state).as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_once_they_are_known() {
        let checkpoint = |state: &str| -> Checkpoint {
            serde_json::from_value(json!({
                "id": "k1", "sandbox_id": "s1", "state": state, "depth": 1, "parent_id": "k0", "docker_image": "debian:12",
                "occupied_bytes": 5 << 20, "stored_bytes": 1 << 20, "created_at": "1970-01-01T00:00:00Z",
                "updated_at": "1970-01-01T00:00:00Z",
            }))
            .expect("a checkpoint")
        };
        let view =
            |state| CheckpointsView { list: Checkpoints { checkpoints: vec![checkpoint(state)] }, now_ms: 120_000 };
        assert!(view("DURABLE").table().contains(&human_size(5 << 20)), "{}", view("DURABLE").table());
        assert!(!view("PENDING").table().contains(&human_size(5 << 20)) && view("PENDING").table().contains("PENDING"));
        let detail = CheckpointView { checkpoint: checkpoint("FAILED") };
        assert!(detail.table().contains("FAILED") && !detail.table().contains("team_id"), "{}", detail.table());
        assert_eq!(detail.json()["id"], "k1");
    }
}
