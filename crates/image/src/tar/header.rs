//! The fixed block at the start of each entry.

use super::TarError;
use super::number::{signed, unsigned};
use super::sparse::{self, Segment};

/// Bytes of a header, and what everything is padded to.
pub(super) const RECORD: usize = 512;

/// The fields of a header as they stand.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) kind: u8,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) mtime: i64,
    pub(super) major: u32,
    pub(super) minor: u32,
    /// Of a GNU sparse entry: first segments, whether more follow, real size.
    pub(super) sparse: Option<(Vec<Segment>, bool, u64)>,
}

/// Parses a header; `None` for a record of zeroes, which ends a tar.
pub(super) fn parse(record: &[u8; RECORD]) -> Result<Option<Header>, TarError> {
    if record.iter().all(|b| *b == 0) {
        return Ok(None);
    }
    check_sum(record)?;
    let bad = |what: &'static str| TarError::BadHeader(what);
    let magic = &record[257..263];
    let kind = record[156];
    let has_devices = magic.starts_with(b"ustar");
    let device = |at: usize| match has_devices {
        true => unsigned(&record[at..at + 8]).and_then(|n| u32::try_from(n).ok()).ok_or(bad("device number")),
        false => Ok(0),
    };
    Ok(Some(Header {
        path: full_path(record),
        link: text(&record[157..257]).to_vec(),
        kind,
        mode: (signed(&record[100..108]).ok_or(bad("mode"))? & 0o7777) as u16,
        uid: owner(&record[108..116]).ok_or(bad("owner"))?,
        gid: owner(&record[116..124]).ok_or(bad("group"))?,
        size: unsigned(&record[124..136]).ok_or(bad("size"))?,
        mtime: signed(&record[136..148]).ok_or(bad("time"))?,
        major: device(329)?,
        minor: device(337)?,
        sparse: if kind == b'S' { Some(gnu_sparse(record)?) } else { None },
    }))
}

fn check_sum(record: &[u8; RECORD]) -> Result<(), TarError> {
    let stored = unsigned(&record[148..156]).ok_or(TarError::BadHeader("checksum"))?;
    let sum = |add: fn(u8) -> i64| -> i64 {
        record.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { add(*b) }).sum()
    };
    // Some old programs summed signed bytes.
    let fits = [sum(i64::from), sum(|b| i64::from(b as i8))].iter().any(|s| u64::try_from(*s) == Ok(stored));
    if fits { Ok(()) } else { Err(TarError::BadHeader("checksum")) }
}

/// Owners over 32 bits do not exist; old tars of `nobody` have -1 or -2.
fn owner(field: &[u8]) -> Option<u32> {
    let value = signed(field)?;
    u32::try_from(value).ok().or_else(|| i32::try_from(value).ok().map(|n| n as u32))
}

fn full_path(record: &[u8; RECORD]) -> Vec<u8> {
    let name = text(&record[..100]);
    // Only POSIX headers have a prefix; GNU ones keep other things in its place.
    let prefix = if &record[257..263] == b"ustar\0" { text(&record[345..500]) } else { b"" };
    if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
}

fn gnu_sparse(record: &[u8; RECORD]) -> Result<(Vec<Segment>, bool, u64), TarError> {
    let mut segments = Vec::new();
    sparse::gnu_segments(&record[386..482], &mut segments)?;
    let real = unsigned(&record[483..495]).ok_or(TarError::BadHeader("sparse size"))?;
    Ok((segments, record[482] != 0, real))
}

/// A text field without its padding.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|b| *b == 0).next().unwrap_or_default()
}
