//! A running VM at one moment: memory, devices, disk.

use crate::chain::Chain;
use crate::cmdline::ROOT_NODE;
use crate::delta::{self, Run};
use crate::disk::successor_node;
use crate::memory::{GuestMemory, PAGE, Part};
use crate::{Vm, VmError, overlay};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Changed memory up to which each part of it is held in the owner's memory, so that the VM goes on before it is written, bytes.
const HELD_LEN_MAX: u64 = 128 << 20;

/// Where a snapshot's parts go, relative to the VM's folder; none of them may exist.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotFiles<'a> {
    /// Device state. QEMU writes it.
    pub state: &'a Path,
    /// What of the memory has changed, see [`crate::Delta`].
    pub delta: &'a Path,
    /// The new overlay that the VM writes to from now on.
    pub successor: &'a Path,
}

/// A snapshot whose VM runs on; its memory may still have to be written.
#[derive(Debug)]
pub struct Snapshot {
    /// How long the VM stood still.
    pub paused: Duration,
    /// Pages of memory that had changed since the VM's start.
    pub pages: u64,
    memory_len: u64,
    delta: PathBuf,
    /// Memory that is not written yet.
    held: Vec<Part>,
}

impl Snapshot {
    /// Writes what is not written yet. Blocks.
    pub fn write(self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let runs: Vec<Run> = self.held.iter().flat_map(|part| part.runs.iter().copied()).collect();
        let mut file = File::create_new(&self.delta)?;
        delta::write_head(&mut file, self.memory_len, &runs)?;
        self.held.iter().try_for_each(|part| file.write_all(&part.pages))
    }
}

impl Vm {
    /// Takes a snapshot of a VM whose memory is private: it stops for as long as it takes to save its devices, to copy its changed memory and
    /// to freeze its disk, and runs on; unless it is to `stay` so, and all went well: see [`Vm::go_on`]. `at_rest` is called while it stands still.
    ///
    /// The overlay that was written to before is frozen for ever. After an error the successor may be in use or not: see [`Vm::overlays`].
    pub async fn snapshot<T>(
        &mut self,
        files: SnapshotFiles<'_>,
        stay: bool,
        at_rest: impl FnOnce() -> io::Result<T>,
    ) -> Result<(Snapshot, T), VmError> {
        let memory = Arc::new(self.guest_memory()?);
        // Asked before, so that room for the pages is there when the VM stands still; a few more will have changed by then.
        let changed = memory.changed().map_err(memory_failed)?;
        let parts =
            if delta::page_count(&changed) * PAGE <= HELD_LEN_MAX { memory.parts(&changed) } else { Vec::new() };
        let node = self.prepare_successor(ROOT_NODE, files.successor).await?;
        let began = Instant::now();
        let taken = match self.stop().await {
            Ok(()) => self.take(&memory, parts, &node, files, at_rest).await,
            Err(error) => Err(error),
        };
        // A stop that was answered too late has come about all the same.
        let resumed = if stay && taken.is_ok() { Ok(()) } else { self.go_on().await };
        let paused = began.elapsed();
        match taken {
            Ok((Taken { pages, held }, own)) => {
                resumed?;
                let delta = self.dir().join(files.delta);
                Ok((Snapshot { paused, pages, memory_len: memory.len(), delta, held }, own))
            }
            Err(error) => {
                if self.chain(ROOT_NODE)?.top != node {
                    self.forget_successor(&node, files.successor).await;
                }
                Err(error)
            }
        }
    }

    async fn stop(&self) -> Result<(), VmError> {
        self.qmp().execute("stop", Value::Null).await?;
        Ok(())
    }

    /// Lets a VM run that stands still.
    pub async fn go_on(&self) -> Result<(), VmError> {
        self.qmp().execute("cont", Value::Null).await?;
        Ok(())
    }

    /// What is done while the VM stands still: QEMU saves the devices and freezes the disk while we copy the memory.
    async fn take<T>(
        &mut self,
        memory: &Arc<GuestMemory>,
        parts: Vec<Part>,
        node: &str,
        files: SnapshotFiles<'_>,
        at_rest: impl FnOnce() -> io::Result<T>,
    ) -> Result<(Taken, T), VmError> {
        let copying = tokio::task::spawn_blocking({
            let (memory, delta) = (memory.clone(), self.dir().join(files.delta));
            move || match hold(&memory, parts)? {
                Some(taken) => Ok(taken),
                None => copy(&memory, &delta),
            }
        });
        let own = async {
            let own = at_rest().map_err(|e| VmError::io("copy", Path::new("the exchange disk"), e))?;
            self.save_devices(files.state).await?;
            self.switch_to(ROOT_NODE, node, files.successor).await?;
            Ok(own)
        };
        let own: Result<T, VmError> = own.await;
        // Whatever became of the rest: it reads a memory that is about to change.
        let taken = copying.await.map_err(io::Error::other).flatten().map_err(memory_failed)?;
        Ok((taken, own?))
    }

    /// Freezes one disk alone, named as in [`crate::VmConfig`]: the overlay that is written to gets a successor. What the guest has not
    /// written is not in it.
    pub async fn freeze_disk(&mut self, disk: &str, successor: &Path) -> Result<(), VmError> {
        let node = self.prepare_successor(disk, successor).await?;
        let switched = self.switch_to(disk, &node, successor).await;
        if switched.is_err() {
            self.forget_successor(&node, successor).await;
        }
        switched
    }

    /// The overlays of a disk that this VM has written to since its start, the lowest first, relative to its folder; all but the last are
    /// frozen. None of a disk that it may not write to.
    pub fn overlays(&self, disk: &str) -> &[PathBuf] {
        self.disks.get(disk).map_or(&[], |chain| &chain.overlays)
    }

    fn chain(&self, disk: &str) -> Result<&Chain, VmError> {
        self.disks.get(disk).ok_or_else(|| VmError::NoDisk(disk.to_owned()))
    }

    /// Makes the next overlay, and tells QEMU of it. The name of its node.
    async fn prepare_successor(&mut self, disk: &str, successor: &Path) -> Result<String, VmError> {
        let chain = self.chain(disk)?;
        let written = chain.overlays.last().map_or(Path::new(""), PathBuf::as_path);
        let node = format!("{disk}-{}", chain.overlays.len());
        let path = self.dir().join(successor);
        let failed = |e| VmError::io("read", &path, e);
        let size = overlay::virtual_size(&self.dir().join(written)).map_err(failed)?;
        overlay::create_overlay(&path, size, &[]).map_err(|e| VmError::io("make", &path, io::Error::other(e)))?;
        match self.qmp().execute("blockdev-add", successor_node(&node, successor)).await {
            Ok(_) => Ok(node),
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                Err(error.into())
            }
        }
    }

    /// Removes an overlay that is not in use.
    async fn forget_successor(&self, node: &str, successor: &Path) {
        let _ = self.qmp().execute("blockdev-del", json!({ "node-name": node })).await;
        let _ = std::fs::remove_file(self.dir().join(successor));
    }

    async fn switch_to(&mut self, disk: &str, node: &str, successor: &Path) -> Result<(), VmError> {
        let top = self.chain(disk)?.top.clone();
        self.qmp().execute("blockdev-snapshot", json!({ "node": top, "overlay": node })).await?;
        if let Some(chain) = self.disks.get_mut(disk) {
            chain.top = node.to_owned();
            chain.overlays.push(successor.to_owned());
        }
        Ok(())
    }

    fn guest_memory(&self) -> Result<GuestMemory, VmError> {
        let (Some(pid), Some(inode)) = (self.pid(), self.memory_inode) else {
            return Err(VmError::NoPrivateMemory);
        };
        GuestMemory::open(pid, inode).map_err(|e| VmError::io("open", Path::new("the VM's memory"), e))
    }
}

/// What became of the memory.
struct Taken {
    /// How many pages have changed.
    pages: u64,
    /// Those that are not written yet.
    held: Vec<Part>,
}

fn memory_failed(error: io::Error) -> VmError {
    VmError::io("copy", Path::new("the VM's memory"), error)
}

/// Takes the bytes of all parts at the same time; `None` if there are no parts, or one has more than is held.
fn hold(memory: &GuestMemory, mut held: Vec<Part>) -> io::Result<Option<Taken>> {
    let all_held = std::thread::scope(|scope| {
        let threads: Vec<_> = held.iter_mut().map(|part| scope.spawn(|| memory.hold(part, HELD_LEN_MAX))).collect();
        let panicked = |_| Err(io::Error::other("a thread that copied memory ended"));
        threads
            .into_iter()
            .try_fold(true, |all, thread| Ok::<_, io::Error>(thread.join().unwrap_or_else(panicked)? && all))
    })?;
    let pages = held.iter().map(|part| delta::page_count(&part.runs)).sum();
    Ok((all_held && !held.is_empty()).then_some(Taken { pages, held }))
}

/// Writes what has changed to a file.
fn copy(memory: &GuestMemory, delta: &Path) -> io::Result<Taken> {
    let runs = memory.changed()?;
    let mut file = File::create_new(delta)?;
    delta::write_head(&mut file, memory.len(), &runs)?;
    memory.copy(&runs, &mut file)?;
    Ok(Taken { pages: delta::page_count(&runs), held: Vec::new() })
}
