//! Device state to and from a file. Memory never goes through the stream: it is in a file that both sides map.

use crate::{Event, QmpError, Vm, VmError};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Socket by which device state passes between us and QEMU, in the VM's folder.
const STATE_SOCKET: &str = "state.sock";
/// Largest device state that is taken, bytes (seen: 12 KB).
const STATE_LEN_MAX: u64 = 16 << 20;
/// Longest time to load device state.
const STATE_WAIT_MAX: Duration = Duration::from_secs(30);

impl Vm {
    /// Stops the VM for good and writes its device state to `file`, which is in its folder. Its memory file, mapped shared, is then a template.
    ///
    /// The VM does not run on after this.
    pub async fn save_template(&mut self, file: &Path) -> Result<(), VmError> {
        self.qmp().execute("stop", Value::Null).await?;
        self.save_devices(file).await?;
        // QEMU makes it for itself alone; those who start from it are other users.
        let readable = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(file, readable).map_err(|e| VmError::io("make readable", file, e))
    }

    /// Writes the device state of a stopped VM to `file`.
    pub(crate) async fn save_devices(&self, file: &Path) -> Result<(), VmError> {
        // `live`: else QEMU would give up the disks of a stopped VM, as if another one were to go on with them.
        let name = file.to_string_lossy();
        self.qmp().execute("xen-save-devices-state", json!({ "filename": name, "live": false })).await?;
        Ok(())
    }

    /// Loads device state into a VM that was spawned with `incoming`, and lets it run.
    pub async fn load(&mut self, state: &Path) -> Result<(), VmError> {
        let failed = |e| VmError::io("read", state, e);
        let file = tokio::fs::File::open(state).await.map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(STATE_LEN_MAX).read_to_end(&mut bytes).await.map_err(failed)?;
        self.ignore_shared_memory().await?;
        let socket = self.socket_path(STATE_SOCKET);
        self.qmp().execute("migrate-incoming", json!({ "uri": format!("unix:{STATE_SOCKET}") })).await?;
        let mut stream = self.connect(STATE_SOCKET).await?;
        stream.write_all(&bytes).await.map_err(|e| VmError::io("write", &socket, e))?;
        drop(stream);
        let _ = std::fs::remove_file(&socket);
        self.wait_for_migration().await?;
        self.qmp().execute("cont", Value::Null).await?;
        Ok(())
    }

    /// Tells a restored guest the size of a disk, named as in [`crate::VmConfig`], which is another one than the template's. Without this the
    /// guest has to find the disk anew, which takes it a hundred milliseconds of emulation.
    pub async fn announce_size(&self, disk: &str, overlay: &Path) -> Result<(), VmError> {
        let path = self.dir().join(overlay);
        let size = crate::overlay::virtual_size(&path).map_err(|e| VmError::io("read", &path, e))?;
        self.qmp().execute("block_resize", json!({ "node-name": disk, "size": size })).await?;
        Ok(())
    }

    async fn ignore_shared_memory(&self) -> Result<(), QmpError> {
        let capabilities = json!({ "capabilities": [
            { "capability": "x-ignore-shared", "state": true },
            { "capability": "events", "state": true },
        ]});
        self.qmp().execute("migrate-set-capabilities", capabilities).await.map(drop)
    }

    /// Waits for the event that ends a migration in either direction.
    async fn wait_for_migration(&mut self) -> Result<(), VmError> {
        let wait = async {
            while let Some(Event { name, data }) = self.next_event().await {
                match (name.as_str(), data["status"].as_str()) {
                    ("MIGRATION", Some("completed")) => return Ok(()),
                    ("MIGRATION", Some("failed")) => return Err(VmError::StateRefused),
                    _ => {}
                }
            }
            Err(VmError::Qmp(QmpError::Gone { command: "migrate" }))
        };
        tokio::time::timeout(STATE_WAIT_MAX, wait).await.map_err(|_| VmError::Slow("move device state"))?
    }
}
