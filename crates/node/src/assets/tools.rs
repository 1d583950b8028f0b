//! The disk of kernel modules and stand-in tools that every guest can see.

use super::HostFiles;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use warren_image::ext4::{ExtraContent, ExtraFile, Options, from_directory};

/// Label by which the agent finds the disk.
const LABEL: &str = "warren-tools";

/// Debian's busybox has no `nohup`, with which clients start their background jobs.
pub(super) const NOHUP: &str = "#!/dev/warren/tools/bin/bash\n\
    trap '' HUP\n\
    [[ -t 1 ]] && { exec >>nohup.out || exec >>\"$HOME/nohup.out\" || exit 127; }\n\
    [[ -t 2 ]] && exec 2>&1\n\
    exec -- \"$@\"\n";

/// The helper by which Python programs seed anew after a restore.
pub(super) const RESEED: &str = include_str!("../../../../clients/python/warren_reseed.py");

/// Makes the disk: `/lib/modules/<release>`, `/bin/bash`, `/bin/busybox`, `/bin/nohup` and a link for each of its applets,
/// `/python/warren_reseed.py`.
pub(super) fn make(disk: &Path, host: &HostFiles) -> Result<(), String> {
    let applets: Vec<String> = applets(&host.busybox)?.into_iter().map(|name| format!("/bin/{name}")).collect();
    let open = |path: &Path| File::open(path).map_err(|e| format!("read {}: {e}", path.display()));
    let mut files = Vec::new();
    for (name, path) in [("/bin/bash", &host.bash), ("/bin/busybox", &host.busybox)] {
        files.push(ExtraFile { path: name, mode: 0o755, content: ExtraContent::Bytes(Box::new(open(path)?)) });
    }
    let nohup = ExtraContent::Bytes(Box::new(NOHUP.as_bytes()));
    files.push(ExtraFile { path: "/bin/nohup", mode: 0o755, content: nohup });
    let reseed = ExtraContent::Bytes(Box::new(RESEED.as_bytes()));
    files.push(ExtraFile { path: "/python/warren_reseed.py", mode: 0o644, content: reseed });
    for applet in &applets {
        files.push(ExtraFile { path: applet, mode: 0o777, content: ExtraContent::Symlink("busybox") });
    }
    let modules = format!("/lib/modules/{}", host.release);
    let options = Options { label: LABEL.to_owned(), uuid: *b"warren-tools-v1\0", made_s: 0, writable: false };
    from_directory(&[(&host.modules, &modules)], files, disk, &options).map(drop).map_err(|e| e.to_string())
}

/// What busybox can be called as, besides what the disk has otherwise.
fn applets(busybox: &Path) -> Result<Vec<String>, String> {
    let output = Command::new(busybox).arg("--list").output().map_err(|e| format!("run {}: {e}", busybox.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let plain = |name: &&str| name.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
    Ok(text.lines().filter(plain).filter(|n| !["busybox", "bash", "nohup"].contains(n)).map(str::to_owned).collect())
}
