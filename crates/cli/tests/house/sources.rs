//! Sizes, names, and where `unsafe` lives.

use super::{assert_none, read, root};
use std::path::{Path, PathBuf};

/// Longest source file, lines.
const LINES_MAX: usize = 600;
/// Median of all source files, lines.
const MEDIAN_LINES_MAX: usize = 250;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] = ["utils", "util", "common", "helpers", "helper", "manager", "types", "misc"];

#[test]
fn files_are_short() {
    let mut lines: Vec<(usize, PathBuf)> =
        sources().into_iter().map(|path| (read(&path).lines().count(), path)).collect();
    lines.sort();
    let long = lines.iter().filter(|(lines, _)| *lines > LINES_MAX);
    let faults: Vec<_> = long.map(|(lines, path)| format!("{}: {lines} lines", shown(path))).collect();
    assert_none(&faults, &format!("no file is longer than {LINES_MAX} lines"));
    let median = lines[lines.len() / 2].0;
    assert!(median <= MEDIAN_LINES_MAX, "the median of all files is {median} lines, over {MEDIAN_LINES_MAX}");
}

#[test]
fn names_say_what_is_inside() {
    let says_nothing = |path: &PathBuf| {
        let below_crates = path.strip_prefix(root().join("crates")).expect("a source of ours").with_extension("");
        below_crates.iter().any(|part| EMPTY_NAMES.iter().any(|name| part == *name))
    };
    let faults: Vec<_> = sources().into_iter().filter(says_nothing).map(|path| shown(&path)).collect();
    assert_none(&faults, "names that say nothing about what is inside");
}

#[test]
fn unsafe_has_an_address() {
    let allowed = |path: &Path| path.ends_with("sys.rs") || path.iter().any(|part| part == "sys");
    let mut faults = Vec::new();
    for path in sources().into_iter().filter(|path| !allowed(path)) {
        let found = read(&path)
            .lines()
            .enumerate()
            .filter(|(_, line)| has_unsafe(line))
            .map(|(i, _)| i + 1)
            .collect::<Vec<_>>();
        faults.extend(found.iter().map(|line| format!("{}:{line}", shown(&path))));
    }
    assert_none(&faults, "`unsafe` outside of files named sys.rs and folders named sys");
}

#[test]
fn every_crate_root_closes_the_door_on_unsafe() {
    let is_root = |path: &PathBuf| {
        let in_src = path.parent().is_some_and(|dir| dir.ends_with("src"));
        in_src && (path.ends_with("lib.rs") || path.ends_with("main.rs"))
    };
    let closes = |path: &PathBuf| {
        let text = read(path);
        ["#![forbid(unsafe_code)]", "#![deny(unsafe_code)]"]
            .iter()
            .any(|attribute| text.lines().any(|line| line == *attribute))
    };
    let roots: Vec<_> = sources().into_iter().filter(is_root).collect();
    assert!(roots.len() >= 10, "only {} crate roots were found", roots.len());
    let faults: Vec<_> = roots.into_iter().filter(|path| !closes(path)).map(|path| shown(&path)).collect();
    assert_none(&faults, "crate roots without #![forbid(unsafe_code)] or #![deny(unsafe_code)]");
}

#[test]
fn no_test_is_switched_off() {
    // Put together here, so that this file does not find itself.
    let attribute = concat!("#[", "ignore");
    let off = |path: &PathBuf| read(path).lines().any(|line| line.trim_start().starts_with(attribute));
    let faults: Vec<_> = sources().into_iter().filter(off).map(|path| shown(&path)).collect();
    assert_none(&faults, "tests that are switched off");
}

/// Whether code has the keyword: not in a comment, not as a part of a lint's name or of a text.
fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices("unsafe").any(|(at, word)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let begins = before.is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '_' | '"' | '\'' | '`')));
        begins && after.is_none_or(|c| c.is_whitespace() || matches!(c, '{' | '('))
    })
}

#[test]
fn comments_and_lints_are_not_unsafe() {
    // The word is put together here, so that this file does not find itself.
    let says = |text: &str| has_unsafe(&text.replace('@', concat!("un", "safe")));
    assert!(says("    let x = @ { f() };") && says("@ impl Send for X {}"));
    assert!(!says("#![forbid(@_code)]") && !says("// @ is elsewhere") && !says("\"@\"") && !says("make_@()"));
}

/// All Rust files of our crates.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
