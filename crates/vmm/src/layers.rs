//! A disk of a running machine, frozen as it is at one moment.

use crate::overlay::{Backing, create_overlay, virtual_size};
use crate::vm::{Vm, VmError};
use serde_json::json;
use std::path::PathBuf;

/// A layer that QEMU only reads from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenLayer {
    /// The file, in the VM's folder.
    pub file: PathBuf,
}

impl Vm {
    /// Freezes the layer of `disk` that is written now, and has a new one written. What the guest wrote before the call is in the frozen
    /// one. A disk is named as in [`crate::VmConfig`]; the root is [`ROOT_DISK`].
    pub async fn new_layer(&mut self, disk: &str) -> Result<FrozenLayer, VmError> {
        let layers = self.layers.get(disk).filter(|layers| !layers.is_empty());
        let layers = layers.ok_or_else(|| VmError::NoDisk(disk.to_owned()))?;
        let number = layers.len();
        let (node, next_node) = (node_name(disk, number - 1), node_name(disk, number));
        let (lowest, frozen) = (layers[0].clone(), layers[number - 1].clone());
        let stem = lowest.file_stem().unwrap_or_default().to_string_lossy();
        let next = PathBuf::from(format!("{stem}-{number}.qcow2"));
        let (frozen_path, next_path) = (self.dir().join(&frozen), self.dir().join(&next));
        let size = virtual_size(&frozen_path).map_err(|e| VmError::io("read", &frozen_path, e))?;
        create_overlay(&next_path, Backing::Layer(&frozen), size, &[])
            .map_err(|e| VmError::io("make", &next_path, std::io::Error::other(e)))?;
        let file = json!({ "driver": "file", "filename": next, "locking": "off" });
        let overlay = json!({
            "driver": "qcow2", "node-name": next_node, "discard": "unmap", "detect-zeroes": "unmap", "file": file, "backing": null,
        });
        self.qmp().execute("blockdev-add", overlay).await?;
        self.qmp().execute("blockdev-snapshot", json!({ "node": node, "overlay": next_node })).await?;
        self.layers.entry(disk.to_owned()).or_default().push(next);
        Ok(FrozenLayer { file: frozen })
    }
}

/// QEMU's name for a layer, the lowest being 0.
fn node_name(disk: &str, layer: usize) -> String {
    match layer {
        0 => disk.to_owned(),
        _ => format!("{disk}-{layer}"),
    }
}
