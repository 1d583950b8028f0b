use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use warren_proto::guest::{exchange, is_volume_disk};

/// Label of the disk with modules and stand-in tools.
const TOOLS_LABEL: &[u8; 16] = b"warren-tools\0\0\0\0";
/// Where an ext4 superblock starts, bytes.
const SUPERBLOCK_AT: u64 = 1024;
/// How long the host may take to announce the size of a disk after a restore.
const SIZE_WAIT_MAX: Duration = Duration::from_millis(100);
/// Time between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Driver of the disks.
const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_blk";

/// One disk.
pub(super) struct Disk {
    /// Its device file.
    device: PathBuf,
    /// Its name on the virtio bus.
    virtio_name: String,
}

/// What we read of an ext4 superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Blocks of the file system.
    pub blocks: u64,
    /// Size of a block, bytes.
    pub block_len: u64,
    label: [u8; 16],
}

/// Reads the superblock of a disk; `None` if it is no ext4.
pub fn superblock(disk: &File) -> io::Result<Option<Superblock>> {
    let mut bytes = [0; 1024];
    disk.read_exact_at(&mut bytes, SUPERBLOCK_AT)?;
    Ok(parse_superblock(&bytes))
}

fn parse_superblock(bytes: &[u8; 1024]) -> Option<Superblock> {
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    let is_ext4 = bytes[0x38..0x3a] == [0x53, 0xef];
    let wide = word(0x60) & 0x80 != 0;
    let high = if wide { u64::from(word(0x150)) << 32 } else { 0 };
    let label = *bytes[0x78..].first_chunk()?;
    let block_len = 1024u64.checked_shl(word(0x18)).filter(|len| (1024..=65536).contains(len))?;
    is_ext4.then_some(Superblock { blocks: high | u64::from(word(0x04)), block_len, label })
}

/// The virtio disks, by name.
pub(super) fn list() -> io::Result<Vec<Disk>> {
    let mut names: Vec<String> = fs::read_dir("/sys/block")?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("vd"))
        .collect();
    names.sort();
    let disk = |name: String| {
        let bus = fs::read_link(format!("/sys/block/{name}/device"))?;
        let virtio_name = bus.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        Ok(Disk { device: Path::new("/dev").join(name), virtio_name })
    };
    names.into_iter().map(disk).collect()
}

/// The disk through which large files pass, taken out of `disks`; to be read and written past the page cache only.
pub(super) fn take_exchange(disks: &mut Vec<Disk>) -> io::Result<Option<File>> {
    let Some(at) = disks.iter().position(|disk| disk.serial().is_some_and(|serial| serial == exchange::SERIAL)) else {
        return Ok(None);
    };
    let disk = disks.remove(at);
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    Ok(Some(rustix::fs::open(&disk.device, flags, Mode::empty())?.into()))
}

/// The volumes' disks with their names, taken out of `disks`.
pub(super) fn take_volumes(disks: &mut Vec<Disk>) -> io::Result<Vec<(String, LateDisk)>> {
    let name = |disk: &Disk| disk.serial().filter(|serial| is_volume_disk(serial));
    let (volumes, others) = std::mem::take(disks).into_iter().partition(|disk| name(disk).is_some());
    *disks = others;
    let late = |disk: Disk| Ok((name(&disk).unwrap_or_default(), LateDisk::find(disk)?));
    Vec::into_iter(volumes).map(late).collect()
}

/// The device of the disk with the tools' label. A guest without works, as far as its image does.
pub(super) fn find_tools(disks: &[Disk]) -> io::Result<Option<PathBuf>> {
    for disk in disks {
        let found = superblock(&File::open(&disk.device)?)?;
        if found.is_some_and(|superblock| superblock.label == *TOOLS_LABEL) {
            return Ok(Some(disk.device.clone()));
        }
    }
    Ok(None)
}

/// A disk of the sandbox: its root, or a volume.
///
/// While a template is made it is a placeholder without a file system; after a restore the sandbox's disk is in its place. The
/// host then announces its size as a change of size, which costs the guest a tenth of what finding the disk anew does.
pub struct LateDisk {
    disk: Disk,
    /// Size of the placeholder, sectors; `None` where the sandbox's disk is there from the start (a cold boot).
    placeholder: Option<u64>,
}

/// The first disk that is not the tools'.
pub(super) fn find_root(disks: Vec<Disk>, tools: Option<&Path>) -> io::Result<LateDisk> {
    let root = disks.into_iter().find(|disk| Some(disk.device.as_path()) != tools);
    LateDisk::find(root.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no disk for the root"))?)
}

impl LateDisk {
    fn find(disk: Disk) -> io::Result<Self> {
        let is_placeholder = superblock(&File::open(&disk.device)?)?.is_none();
        let placeholder = if is_placeholder { Some(disk.sectors()?) } else { None };
        Ok(Self { disk, placeholder })
    }

    /// The same for one that the host does not let be written to, so that its size cannot be announced: the driver finds it anew,
    /// and then knows that it is read-only.
    pub fn read_only_device(&self) -> io::Result<PathBuf> {
        if self.placeholder.is_some() { self.disk.find_anew() } else { Ok(self.disk.device.clone()) }
    }

    /// Its device file, once it is the sandbox's disk.
    pub fn device(&self) -> io::Result<PathBuf> {
        let Some(placeholder) = self.placeholder else { return Ok(self.disk.device.clone()) };
        let deadline = Instant::now() + SIZE_WAIT_MAX;
        while self.disk.sectors()? == placeholder {
            if Instant::now() >= deadline {
                return self.disk.find_anew();
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(self.disk.device.clone())
    }
}

impl Disk {
    fn sectors(&self) -> io::Result<u64> {
        self.attribute("size")?.parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// The name that the host gave it.
    fn serial(&self) -> Option<String> {
        self.attribute("serial").ok()
    }

    fn attribute(&self, attribute: &str) -> io::Result<String> {
        let name = self.device.file_name().unwrap_or_default();
        let text = fs::read_to_string(Path::new("/sys/block").join(name).join(attribute))?;
        Ok(text.trim().to_owned())
    }

    /// Makes the driver read the disk's size, where the host has not announced it.
    fn find_anew(&self) -> io::Result<PathBuf> {
        fs::write(format!("{DRIVER}/unbind"), &self.virtio_name)?;
        fs::write(format!("{DRIVER}/bind"), &self.virtio_name)?;
        let block = format!("/sys/bus/virtio/devices/{}/block", self.virtio_name);
        let entry = fs::read_dir(block)?.next().ok_or(io::ErrorKind::NotFound)??;
        Ok(Path::new("/dev").join(entry.file_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_superblock_is_read() {
        let mut bytes = [0; 1024];
        bytes[0x38..0x3a].copy_from_slice(&[0x53, 0xef]);
        bytes[0x18] = 2;
        bytes[0x04..0x08].copy_from_slice(&7u32.to_le_bytes());
        bytes[0x78..0x88].copy_from_slice(TOOLS_LABEL);
        let wanted = Superblock { blocks: 7, block_len: 4096, label: *TOOLS_LABEL };
        assert_eq!(parse_superblock(&bytes), Some(wanted));
        bytes[0x60] = 0x80;
        bytes[0x150] = 1;
        assert_eq!(parse_superblock(&bytes), Some(Superblock { blocks: 7 | 1 << 32, ..wanted }));
        assert_eq!(parse_superblock(&[0; 1024]), None);
    }

    proptest! {
        #[test]
        fn foreign_disks_never_panic(bytes in proptest::collection::vec(any::<u8>(), 1024)) {
            let _ = parse_superblock(bytes.first_chunk().unwrap());
        }
    }
}
