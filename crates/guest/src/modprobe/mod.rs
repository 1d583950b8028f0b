//! The agent as the kernel's module loader, and as `modprobe` in images that bring none: Docker, for one, runs it.

mod asked;
mod index;

use asked::Asked;
use index::{Index, is_listed, normal};
use std::ffi::{CStr, CString, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Folders of kernels' modules: the first is where everybody looks, the second stays when the guest changes that.
const FOLDERS: [&str; 2] = ["/lib/modules", "/dev/warren/tools/lib/modules"];

/// Loads what the arguments name, with what that depends on.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let asked = match Asked::parse(args.filter_map(|arg| arg.into_string().ok())) {
        Ok(asked) => asked,
        Err(option) => {
            eprintln!("modprobe: {option} is not offered by this stand-in; install kmod");
            return ExitCode::FAILURE;
        }
    };
    let Some(folder) = folder() else {
        eprintln!("modprobe: there are no modules of the running kernel in /lib/modules");
        return ExitCode::FAILURE;
    };
    let mut code = ExitCode::SUCCESS;
    for name in &asked.modules {
        if let Err(error) = load(&folder, name, &asked.parameters) {
            // The kernel, which asks with -q, tries many names that do not exist.
            if error.kind() != io::ErrorKind::NotFound {
                eprintln!("modprobe: {name}: {error}");
            } else if !asked.quiet {
                eprintln!("modprobe: there is no module {name} in {}", folder.display());
            }
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// The running kernel's modules.
fn folder() -> Option<PathBuf> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut folders = FOLDERS.iter().map(|folder| Path::new(folder).join(&*release));
    folders.find(|folder| folder.join("modules.dep").exists())
}

fn load(folder: &Path, name: &str, parameters: &str) -> io::Result<()> {
    let parameters = CString::new(parameters)?;
    let dependencies = fs::read_to_string(folder.join("modules.dep"))?;
    let index = Index::new(&dependencies);
    if let Some(files) = index.files_of(&normal(name)) {
        return load_all(folder, &files, &parameters);
    }
    let aliases = fs::read_to_string(folder.join("modules.alias"))?;
    let mut found = false;
    for module in index::aliased(&aliases, name) {
        if let Some(files) = index.files_of(module) {
            load_all(folder, &files, &parameters)?;
            found = true;
        }
    }
    if !found {
        let builtin = fs::read_to_string(folder.join("modules.builtin"))?;
        found = is_listed(&builtin, &normal(name));
    }
    if found { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Loads files in this order; the parameters are the last one's.
fn load_all(folder: &Path, files: &[&str], parameters: &CStr) -> io::Result<()> {
    for (place, file) in files.iter().enumerate() {
        let path: PathBuf = folder.join(file);
        let parameters = if place + 1 == files.len() { parameters } else { c"" };
        match rustix::system::finit_module(File::open(&path)?, parameters, 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(io::Error::new(io::Error::from(error).kind(), format!("{file}: {error}"))),
        }
    }
    Ok(())
}
