use crate::cmdline::{MachineFiles, ROOT_NODE};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The overlays of one disk that its VM has written to since its start.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Relative to the VM's folder, the lowest first; all but the last are frozen.
    pub(crate) overlays: Vec<PathBuf>,
    /// The node of the last.
    pub(crate) top: String,
}

impl Chain {
    fn new(disk: &str, overlay: &Path) -> Self {
        Self { overlays: vec![overlay.to_owned()], top: disk.to_owned() }
    }

    /// Of each disk of a new VM that it may write to, by the disk's name.
    pub(crate) fn of(files: &MachineFiles) -> BTreeMap<String, Chain> {
        let volumes = files.volumes.iter().filter(|volume| !volume.read_only);
        let volumes = volumes.map(|volume| (volume.disk.clone(), Chain::new(&volume.disk, &volume.overlay)));
        volumes.chain([(ROOT_NODE.to_owned(), Chain::new(ROOT_NODE, &files.root_overlay))]).collect()
    }
}
