//! Checkpoints: what a node makes of the disk of a sandbox, and keeps as an image.

use serde::{Deserialize, Serialize};
use warren_model::CheckpointId;

/// Longest that [`super::NodeApi::checkpoint_state`] is held while nothing changes, seconds.
pub const STATE_HOLD_SECS: u64 = 20;

/// How far a checkpoint is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CheckpointState {
    /// Its disk is frozen and safe; it is being made into an image that is durable.
    Pending,
    /// It is durable: in the object store if the node has one, else in the node's own store.
    Durable(CheckpointMade),
    /// It can never be restored.
    Failed {
        /// What happened, for people.
        problem: String,
    },
}

/// A checkpoint that can be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointMade {
    /// Digest of the image that it became.
    pub digest: String,
    /// Length of the disk, bytes.
    pub disk_size_bytes: u64,
    /// Bytes that it holds and the image below it does not.
    pub stored_bytes: u64,
    /// Bytes of all that is no hole.
    pub occupied_bytes: u64,
}

/// Before the id of a checkpoint in the name of its image: an owned name, which no registry is ever asked for, of an owner that cannot be.
const IMAGES: &str = "prime/_checkpoint/";

/// Name on a node of the image that a checkpoint became.
pub fn checkpoint_image(id: &CheckpointId, digest: &str) -> String {
    format!("{IMAGES}{id}@{digest}")
}

/// Whether an image of a node is a checkpoint.
pub fn is_checkpoint_image(name: &str) -> bool {
    name.starts_with(IMAGES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_model::reference::Reference;

    #[test]
    fn the_name_of_the_image_is_a_reference_without_a_registry() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let name = checkpoint_image(&CheckpointId::parse("k1").unwrap(), &digest);
        let reference = Reference::parse(&name).unwrap();
        assert_eq!((reference.to_string(), reference.registry()), (name.clone(), None));
        assert!(reference.digest().is_some() && is_checkpoint_image(&name));
    }
}
