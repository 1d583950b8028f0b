//! Disks as QEMU is told of them: block device nodes in its JSON, each with what it lies on inside. Pure.

use serde_json::{Value, json};
use std::path::Path;
use warren_proto::shim::{DiskBase, ImageDisk};

/// Longest that reads wait for a server that went away, seconds: a node's restart.
const RECONNECT_WAIT_SECS_MAX: u64 = 3600;

/// A file. Its name passes as text: one that is not UTF-8 is not found.
fn file(path: &Path) -> Value {
    json!({ "driver": "file", "filename": path.to_string_lossy(), "locking": "off" })
}

fn image(image: &ImageDisk) -> Value {
    match image {
        ImageDisk::Raw(path) => json!({ "driver": "raw", "read-only": true, "file": file(path) }),
        ImageDisk::Within { file: path, offset } => {
            let within = json!({ "driver": "raw", "offset": offset, "file": file(path) });
            json!({ "driver": "qcow2", "read-only": true, "file": within })
        }
        ImageDisk::Served(socket) => {
            let server = json!({ "type": "unix", "path": socket.to_string_lossy() });
            let nbd = json!({ "driver": "nbd", "server": server, "reconnect-delay": RECONNECT_WAIT_SECS_MAX });
            json!({ "driver": "raw", "read-only": true, "file": nbd })
        }
    }
}

/// What an overlay lies on, as one node.
fn base(base: &DiskBase) -> Value {
    base.layers.iter().fold(
        image(&base.image),
        |below, layer| json!({ "driver": "qcow2", "read-only": true, "file": file(layer), "backing": below }),
    )
}

/// A qcow2 that a guest writes to. What the guest trims becomes a hole of the file. Nothing is forced onto the host's disk: a sandbox does not
/// survive its host, and who makes its bytes last syncs them.
fn writable(name: &str, overlay: &Path, below: Value) -> Value {
    json!({
        "driver": "qcow2",
        "node-name": name,
        "discard": "unmap",
        "detect-zeroes": "unmap",
        "cache": { "no-flush": true },
        "file": file(overlay),
        "backing": below,
    })
}

/// The node `name` of a disk that a guest writes to.
pub(crate) fn overlay_node(name: &str, overlay: &Path, on: &DiskBase) -> Value {
    writable(name, overlay, base(on))
}

/// The node `name` of a disk that a guest only reads.
pub(crate) fn read_only_node(name: &str, overlay: &Path, on: &DiskBase) -> Value {
    json!({ "driver": "qcow2", "node-name": name, "read-only": true, "file": file(overlay), "backing": base(on) })
}

/// The node `name` that will be put on another one.
pub(crate) fn successor_node(name: &str, overlay: &Path) -> Value {
    writable(name, overlay, Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_lie_on_each_other_and_on_the_image() {
        let on = DiskBase { image: ImageDisk::Raw("/i".into()), layers: vec!["/a".into(), "/b".into()] };
        let node = overlay_node("root", Path::new("disk"), &on);
        assert_eq!(node["file"]["filename"], "disk");
        assert_eq!(node["backing"]["file"]["filename"], "/b");
        assert_eq!(node["backing"]["backing"]["file"]["filename"], "/a");
        assert_eq!(node["backing"]["backing"]["backing"]["file"]["filename"], "/i");
        assert_eq!(node["backing"]["backing"]["read-only"], true);
        let node = read_only_node("volume-0", Path::new("v"), &on);
        assert_eq!((&node["read-only"], &node["node-name"]), (&json!(true), &json!("volume-0")));
    }
}
