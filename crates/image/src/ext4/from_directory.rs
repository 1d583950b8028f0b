use super::tree::Meta;
use super::{Builder, Ext4Error, Options, Summary};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file to add that is not in the directory.
pub struct ExtraFile<'a> {
    /// Path inside the file system.
    pub path: &'a str,
    /// Permission bits.
    pub mode: u16,
    /// Its content, or the target if it is to be a symbolic link.
    pub content: ExtraContent<'a>,
}

/// What an [`ExtraFile`] holds.
pub enum ExtraContent<'a> {
    /// A regular file.
    Bytes(Box<dyn Read + 'a>),
    /// A symbolic link to this target.
    Symlink(&'a str),
}

/// Makes a file system at `dst` from directories of the host, each `(host path, path inside)`, and extra files.
///
/// Everything is owned by root; modes and times are kept; only directories, regular files and symbolic links are taken.
/// A symbolic link on the host is copied as a link, never followed. `dst` is replaced.
pub fn from_directory(
    sources: &[(&Path, &str)],
    extra: Vec<ExtraFile<'_>>,
    dst: &Path,
    options: &Options,
) -> Result<Summary, Ext4Error> {
    let mut builder = Builder::new(File::create(dst)?);
    for (host, inside) in sources {
        add_tree(&mut builder, host, inside.as_bytes())?;
    }
    for file in extra {
        let meta = Meta::root(file.mode);
        match file.content {
            ExtraContent::Bytes(mut content) => builder.add_file(file.path.as_bytes(), meta, &mut content)?,
            ExtraContent::Symlink(target) => builder.add_symlink(file.path.as_bytes(), meta, target.as_bytes())?,
        };
    }
    let (file, summary) = builder.finish(options)?;
    file.sync_all()?;
    Ok(summary)
}

fn add_tree(builder: &mut Builder<File>, host: &Path, inside: &[u8]) -> Result<(), Ext4Error> {
    let mut open = vec![(host.to_path_buf(), inside.to_vec())];
    while let Some((host, inside)) = open.pop() {
        builder.add_dir(&inside, root_owned(&fs::metadata(&host)?))?;
        let mut entries = fs::read_dir(&host)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = [&inside, &b"/"[..], entry.file_name().as_bytes()].concat();
            let metadata = entry.metadata()?;
            let meta = root_owned(&metadata);
            let kind = metadata.file_type();
            if kind.is_dir() {
                open.push((entry.path(), path));
            } else if kind.is_symlink() {
                let target = fs::read_link(entry.path())?;
                builder.add_symlink(&path, meta, target.as_os_str().as_bytes())?;
            } else if kind.is_file() {
                builder.add_file(&path, meta, &mut File::open(entry.path())?)?;
            }
        }
    }
    Ok(())
}

fn root_owned(metadata: &Metadata) -> Meta {
    Meta {
        mode: (metadata.mode() & 0o7777) as u16,
        uid: 0,
        gid: 0,
        mtime_s: metadata.mtime(),
        mtime_ns: metadata.mtime_nsec() as u32,
    }
}
