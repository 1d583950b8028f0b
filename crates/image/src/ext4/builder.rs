use super::data::{DataWriter, OpenFile};
use super::finish::Finisher;
use super::layout::BLOCKS_PER_PIECE;
use super::target::Target;
use super::tree::{FileData, Kind, Meta, NodeId, ROOT, Tree, Xattr};
use super::{Ext4Error, Options, Summary};
use std::io::{self, Read};

/// Bytes read at once.
const READ_LEN: usize = 256 << 10;

/// Makes one file system in an empty [`Target`], for instance a file.
///
/// Either by paths (`add_*`, parents are made as needed) or with the [`Tree`] and the data of files apart.
#[derive(Debug)]
pub struct Builder<T> {
    tree: Tree,
    data: DataWriter<T>,
}

impl<T: Target> Builder<T> {
    /// Starts in `target`, which must be empty.
    pub fn new(target: T) -> Self {
        Self { tree: Tree::new(), data: DataWriter::new(target) }
    }

    /// The tree so far.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The tree, to add names to.
    pub fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// Appends bytes to a file whose data arrives. One file at a time, for speed.
    pub fn append(&mut self, file: &mut OpenFile, bytes: &[u8]) -> io::Result<()> {
        self.data.append(file, bytes)
    }

    /// Appends `len` zeroes as a hole.
    pub fn append_hole(&mut self, file: &mut OpenFile, len: u64) -> io::Result<()> {
        self.data.append_hole(file, len)
    }

    /// Small files that come now share no piece of the disk with earlier ones, so that pieces depend on what is in them alone.
    pub fn start_layer(&mut self) {
        self.data.cursor.end_shared(0);
    }

    /// The same for a new directory, unless that would leave most of a piece empty.
    pub fn start_directory(&mut self) {
        self.data.cursor.end_shared(BLOCKS_PER_PIECE / 2);
    }

    /// Ends a file's data; it takes part in the file system once it is in the tree.
    pub fn end(&mut self, file: OpenFile) -> io::Result<FileData> {
        self.data.end(file)
    }

    /// Adds a directory, or sets the metadata of an existing one.
    pub fn add_dir(&mut self, path: &[u8], meta: Meta) -> Result<NodeId, Ext4Error> {
        let dir = self.dir(&split(path)?)?;
        self.tree.node_mut(dir).meta = meta;
        Ok(dir)
    }

    /// Adds a regular file with all that `content` gives.
    pub fn add_file(&mut self, path: &[u8], meta: Meta, content: &mut dyn Read) -> Result<NodeId, Ext4Error> {
        let mut file = OpenFile::default();
        let mut buffer = vec![0; READ_LEN];
        loop {
            match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => self.data.append(&mut file, &buffer[..n])?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        let data = self.data.end(file)?;
        self.add(path, meta, None, Kind::File(data))
    }

    /// Adds a symbolic link.
    pub fn add_symlink(&mut self, path: &[u8], meta: Meta, target: &[u8]) -> Result<NodeId, Ext4Error> {
        if target.is_empty() || target.len() >= super::layout::BLOCK {
            return Err(bad_path(target));
        }
        self.add(path, meta, None, Kind::Symlink(target.into()))
    }

    /// Adds a node of any kind; what was there before is gone.
    pub fn add(
        &mut self,
        path: &[u8],
        meta: Meta,
        xattrs: Option<Box<[Xattr]>>,
        kind: Kind,
    ) -> Result<NodeId, Ext4Error> {
        let parts = split(path)?;
        let (name, parents) = parts.split_last().ok_or_else(|| bad_path(path))?;
        let dir = self.dir(parents)?;
        Ok(self.tree.add(dir, name, 0, meta, xattrs, kind)?)
    }

    /// Gives `existing` one more name.
    pub fn add_hard_link(&mut self, path: &[u8], existing: NodeId) -> Result<(), Ext4Error> {
        let parts = split(path)?;
        let (name, parents) = parts.split_last().ok_or_else(|| bad_path(path))?;
        let dir = self.dir(parents)?;
        Ok(self.tree.link(dir, name, 0, existing)?)
    }

    /// Writes all metadata and gives the target back.
    pub fn finish(self, options: &Options) -> Result<(T, Summary), Ext4Error> {
        Finisher::new(self.tree, self.data, options).run()
    }

    /// The directory at `parts`, made 0755 root where it is missing.
    fn dir(&mut self, parts: &[&[u8]]) -> Result<NodeId, Ext4Error> {
        let mut dir = ROOT;
        for name in parts {
            dir = match self.tree.lookup(dir, name) {
                Some(entry) => entry.node,
                None => self.tree.add(dir, name, 0, Meta::root(0o755), None, Kind::dir())?,
            };
        }
        match self.tree.node(dir).kind {
            Kind::Dir(_) => Ok(dir),
            _ => Err(super::TreeError::NotADirectory.into()),
        }
    }
}

fn split(path: &[u8]) -> Result<Vec<&[u8]>, Ext4Error> {
    let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
    if parts.contains(&&b".."[..]) { Err(bad_path(path)) } else { Ok(parts) }
}

fn bad_path(path: &[u8]) -> Ext4Error {
    Ext4Error::BadPath(String::from_utf8_lossy(path).into_owned())
}
