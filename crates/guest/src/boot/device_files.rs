use crate::report;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Devices that every user may open, as udev's rules have it: what can be done with them is asked for again by the kernel.
const FOR_ALL: [&str; 2] = ["fuse", "net/tun"];

/// A device whose driver is a module that nothing has loaded.
#[derive(Debug, PartialEq, Eq)]
struct Device<'a> {
    /// Path below `/dev`.
    name: &'a str,
    kind: FileType,
    major: u32,
    minor: u32,
}

/// Makes the device files of modules that are loaded by the first use of their file, such as `/dev/fuse` and `/dev/loop-control`. Without the
/// file there is no first use; where systemd is the first process, it does the same. What fails is told on the console.
pub(super) fn make(module_folder: &Path) {
    let list = match fs::read_to_string(module_folder.join("modules.devname")) {
        Ok(list) => list,
        Err(error) => return report!("{}/modules.devname: {error}", module_folder.display()),
    };
    for device in list.lines().filter_map(parse) {
        if let Err(error) = make_one(&device) {
            report!("/dev/{}: {error}", device.name);
        }
    }
}

fn make_one(device: &Device<'_>) -> io::Result<()> {
    let path = Path::new("/dev").join(device.name);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match mknodat(CWD, &path, device.kind, Mode::from(0o600), makedev(device.major, device.minor)) {
        // Its driver is there already.
        Err(Errno::EXIST) => {}
        other => other?,
    }
    if FOR_ALL.contains(&device.name) {
        fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    }
    Ok(())
}

/// Reads `MODULE NAME cMAJOR:MINOR`; `b` is a block device.
fn parse(line: &str) -> Option<Device<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (module, name, numbers) = (words.next()?, words.next()?, words.next()?);
    let kind = match numbers.chars().next()? {
        'c' => FileType::CharacterDevice,
        'b' => FileType::BlockDevice,
        _ => return None,
    };
    let (major, minor) = numbers.get(1..)?.split_once(':')?;
    let stays_below = !name.split('/').any(|part| matches!(part, "" | "." | ".."));
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    (!module.starts_with('#') && stays_below).then_some(Device { name, kind, major, minor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_device() {
        let tun = Device { name: "net/tun", kind: FileType::CharacterDevice, major: 10, minor: 200 };
        assert_eq!(parse("tun net/tun c10:200"), Some(tun));
        let block = Device { name: "x", kind: FileType::BlockDevice, major: 7, minor: 0 };
        assert_eq!(parse("x x b7:0"), Some(block));
    }

    #[test]
    fn what_is_no_device_is_passed_over() {
        for line in [
            "# Device nodes c1:1 to trigger",
            "",
            "a b",
            "a b c",
            "a b c1",
            "a b ü1:2",
            "a b x1:2",
            "a ../b c1:2",
            "a /b c1:2",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
