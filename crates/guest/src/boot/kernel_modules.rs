use crate::report;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Modules of the initramfs, with their order in a file of that name, one a line.
const FOLDER: &str = "/lib/modules-early";

/// Loads the modules that the initramfs brings, in its order. One that fails is told on the console: what needs it will fail by
/// name later.
pub(super) fn load_early() {
    let order = match fs::read_to_string(Path::new(FOLDER).join("order")) {
        Ok(order) => order,
        Err(error) => return report!("{FOLDER}/order: {error}"),
    };
    for name in order.lines().map(str::trim).filter(|name| !name.is_empty()) {
        if let Err(error) = load(&Path::new(FOLDER).join(name)) {
            report!("module {name}: {error}");
        }
    }
}

fn load(path: &Path) -> io::Result<()> {
    match rustix::system::finit_module(File::open(path)?, c"", 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
