use crate::printer::{Table, View, human_size};
use serde_json::{Value, json};
use warren_proto::http::{Checkpoint, CheckpointWord, Volume, VolumeList};

/// One volume.
#[derive(Debug)]
pub(super) struct VolumeView {
    pub(super) volume: Volume,
}

/// What was published.
#[derive(Debug)]
pub(super) struct PublishedView {
    pub(super) checkpoint: Checkpoint,
}

/// A page of volumes.
#[derive(Debug)]
pub(super) struct VolumesView {
    pub(super) list: VolumeList,
}

fn table<'a>(volumes: impl IntoIterator<Item = &'a Volume>) -> String {
    let mut table = Table::new(&["NAME", "OWNER", "SIZE", "PUBLISHED", "CREATED"]);
    for volume in volumes {
        let owner = volume.team_id.as_ref().map_or("you".to_owned(), |team| format!("team {team}"));
        let published = volume.head_checkpoint_id.clone().unwrap_or("never".to_owned());
        let size = human_size(volume.occupied_bytes);
        table.row([volume.name.clone(), owner, size, published, volume.created_at.to_string()]);
    }
    table.render()
}

impl View for VolumeView {
    fn table(&self) -> String {
        table([&self.volume])
    }

    fn json(&self) -> Value {
        json!(self.volume)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.volume.name.clone()]
    }
}

impl View for VolumesView {
    fn table(&self) -> String {
        table(&self.list.volumes)
    }

    fn json(&self) -> Value {
        json!(self.list)
    }

    fn ids(&self) -> Vec<String> {
        self.list.volumes.iter().map(|volume| volume.name.clone()).collect()
    }
}

impl View for PublishedView {
    fn table(&self) -> String {
        let Checkpoint { id, state, occupied_bytes, .. } = &self.checkpoint;
        match state {
            CheckpointWord::Durable => format!("{id}  published, {}\n", human_size(*occupied_bytes)),
            CheckpointWord::Pending | CheckpointWord::Failed => format!("{id}  not durable yet\n"),
        }
    }

    fn json(&self) -> Value {
        json!(self.checkpoint)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.checkpoint.id.clone()]
    }
}
