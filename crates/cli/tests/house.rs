//! The rules of the house: each rule that the documents name and no compiler checks is a test here.

#[path = "house/architecture.rs"]
mod architecture;
#[path = "house/sources.rs"]
mod sources;

use std::path::{Path, PathBuf};

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli is two levels deep").to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails with all faults at once.
fn assert_none(faults: &[String], rule: &str) {
    assert!(faults.is_empty(), "{rule}:\n  {}", faults.join("\n  "));
}
