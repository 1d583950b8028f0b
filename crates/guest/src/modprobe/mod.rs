//! The agent as the kernel's module loader: `modprobe -q -- NAME`, where NAME is a module or an alias. Images bring none.

mod index;

use index::{Index, normal};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Folders of kernels' modules: the first is where everybody looks, the second stays when the guest changes that.
const FOLDERS: [&str; 2] = ["/lib/modules", "/dev/warren/tools/lib/modules"];

/// Loads what the arguments name, with what that depends on.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let names = args.filter_map(|arg| arg.into_string().ok()).filter(|arg| !arg.starts_with('-'));
    let Some(folder) = folder() else { return ExitCode::FAILURE };
    for name in names {
        if let Err(error) = load(&folder, &name) {
            // Asked for with -q: the kernel tries many names that do not exist.
            let missing = error.kind() == io::ErrorKind::NotFound;
            if !missing {
                crate::report!("modprobe {name}: {error}");
            }
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The running kernel's modules.
fn folder() -> Option<PathBuf> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut folders = FOLDERS.iter().map(|folder| Path::new(folder).join(&*release));
    folders.find(|folder| folder.join("modules.dep").exists())
}

fn load(folder: &Path, name: &str) -> io::Result<()> {
    let dependencies = fs::read_to_string(folder.join("modules.dep"))?;
    let index = Index::new(&dependencies);
    let mut found = false;
    if let Some(files) = index.files_of(&normal(name)) {
        return load_all(folder, &files);
    }
    let aliases = fs::read_to_string(folder.join("modules.alias"))?;
    for module in index::aliased(&aliases, name) {
        if let Some(files) = index.files_of(module) {
            load_all(folder, &files)?;
            found = true;
        }
    }
    if found { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Loads files in this order.
fn load_all(folder: &Path, files: &[&str]) -> io::Result<()> {
    for file in files {
        let path: PathBuf = folder.join(file);
        match rustix::system::finit_module(File::open(&path)?, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(io::Error::new(io::Error::from(error).kind(), format!("{file}: {error}"))),
        }
    }
    Ok(())
}
