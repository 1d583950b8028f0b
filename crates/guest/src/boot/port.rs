use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// Name that the VMM gives the agent's port.
const NAME: &str = "agent";
/// How long the port is waited for: its name comes from the VMM, after the driver is ready.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Waits for the agent's port and answers its device.
pub(super) async fn find() -> io::Result<PathBuf> {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        if let Some(device) = look() {
            return Ok(device);
        }
        if Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("no virtio port is named {NAME:?}")));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn look() -> Option<PathBuf> {
    fs::read_dir("/sys/class/virtio-ports").ok()?.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        (name.trim_end() == NAME).then(|| Path::new("/dev").join(entry.file_name()))
    })
}
