use super::Steps;
use crate::boot::{LateDisk, MODULE_LOADER, Staged, Superblock, modules_of_tools, superblock};
use crate::http::Refusal;
use crate::sys;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount, mount_bind, mount_move};
use std::ffi::CStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Where the disk is mounted until it becomes the root.
const NEW_ROOT: &str = "/newroot";
/// The part of a disk is new and reads as zeros, so the kernel need not write zeros to its inode tables: neither when the file
/// system grows nor in the background later.
pub(super) const OPTIONS: &CStr = c"noinit_itable";
/// Room at the end of a disk for which it is not worth growing, bytes.
const GROWTH_LEN_MIN: u64 = 8 << 20;

/// Makes the disk the root of this process and all that it starts.
pub(super) fn enter(steps: &mut Steps, disk: &LateDisk, staged: Staged) -> Result<(), Refusal> {
    let device = steps.run("find_disk", || disk.device())?;
    let growth = steps.run("read_disk", || growth(&device))?;
    steps.run("mount_root", || {
        fs::create_dir_all(NEW_ROOT)?;
        Ok(mount(&device, NEW_ROOT, "ext4", MountFlags::empty(), OPTIONS)?)
    })?;
    if let Some(blocks) = growth {
        steps.run("grow_root", || grow(blocks))?;
    }
    steps.run("enter_root", || {
        rustix::process::chdir(NEW_ROOT)?;
        mount_move(".", "/")?;
        rustix::process::chroot(".")?;
        rustix::process::chdir("/")?;
        staged.attach()
    })?;
    steps.run("tmp", || {
        if !Path::new("/tmp").exists() {
            fs::create_dir_all("/tmp")?;
            fs::set_permissions("/tmp", Permissions::from_mode(0o1777))?;
        }
        Ok(())
    })
}

/// The number of blocks to grow to; `None` where the file system fills the disk already, as it does when the host has prepared it.
fn growth(device: &Path) -> io::Result<Option<u64>> {
    let mut disk = File::open(device)?;
    let len = disk.seek(SeekFrom::End(0))?;
    let found = superblock(&disk)?;
    let Superblock { blocks, block_len, .. } =
        found.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the root disk holds no ext4"))?;
    let wanted = len / block_len;
    Ok(Some(wanted).filter(|&wanted| wanted.saturating_sub(blocks) * block_len >= GROWTH_LEN_MIN))
}

fn grow(blocks: u64) -> io::Result<()> {
    let root = rustix::fs::open(NEW_ROOT, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    sys::grow_ext4(root.as_fd(), blocks)
}

/// Makes the loader of modules a program of the image, in an image that brings none: Docker and others run it.
pub(super) fn provide_modprobe() -> io::Result<()> {
    const NAME: &str = "modprobe";
    const FOLDER: &str = "/sbin";
    let is_there = |folder: &&str| Path::new(folder).join(NAME).symlink_metadata().is_ok();
    if !Path::new(FOLDER).is_dir() || [FOLDER, "/usr/sbin", "/bin", "/usr/bin"].iter().any(is_there) {
        return Ok(());
    }
    keeping_times(Path::new(FOLDER), || symlink(MODULE_LOADER, Path::new(FOLDER).join(NAME)))
}

/// Changes a folder of the image, which is otherwise to stay as it was.
pub(crate) fn keeping_times(folder: &Path, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let before = fs::metadata(folder)?;
    change()?;
    let times = FileTimes::new().set_accessed(before.accessed()?).set_modified(before.modified()?);
    File::open(folder)?.set_times(times)
}

/// Shows the running kernel's modules where programs look for them, unless the image brings its own.
pub(super) fn mount_modules() -> io::Result<()> {
    let source = modules_of_tools();
    let target = Path::new("/lib/modules").join(source.file_name().unwrap_or_default());
    if target.exists() || !source.exists() {
        return Ok(());
    }
    let parent = target.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/")).to_owned();
    keeping_times(&parent, || fs::create_dir_all(&target))?;
    Ok(mount_bind(&source, &target)?)
}
