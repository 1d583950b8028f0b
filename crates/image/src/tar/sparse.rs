//! Maps of sparse files in their four spellings: GNU, PAX 0.0, 0.1 and 1.0.

use super::TarError;
use super::header::{RECORD, text};
use super::number::unsigned;
use super::pax::decimal;
use crate::limits::SPARSE_PIECES_MAX;

/// `len` bytes of data at `offset` of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Adds the `(offset, length)` pairs of 24 bytes each; an empty one ends them.
pub(super) fn gnu_segments(pairs: &[u8], out: &mut Vec<Segment>) -> Result<(), TarError> {
    for pair in pairs.chunks_exact(24) {
        if text(pair).is_empty() {
            break;
        }
        let number = |field| unsigned(field).ok_or(TarError::BadHeader("sparse map"));
        push(out, Segment { offset: number(&pair[..12])?, len: number(&pair[12..])? })?;
    }
    Ok(())
}

/// Parses `offset,length,offset,length` of PAX 0.1.
pub(super) fn pax_map(value: &[u8]) -> Result<Vec<Segment>, TarError> {
    let mut out = Vec::new();
    let mut numbers = value.split(|b| *b == b',').filter(|n| !n.is_empty());
    while let Some(offset) = numbers.next() {
        let len = numbers.next().ok_or(TarError::BadHeader("sparse map"))?;
        push(&mut out, Segment { offset: number(offset)?, len: number(len)? })?;
    }
    Ok(out)
}

/// The map at the start of the data in PAX 1.0: lines of decimal numbers, padded to a record. Fed record by record.
#[derive(Debug, Default)]
pub(super) struct DataMap {
    lines: Vec<u64>,
    partial: Vec<u8>,
    wanted: Option<usize>,
}

impl DataMap {
    /// Takes a record. The map, once it is whole.
    pub(super) fn feed(&mut self, record: &[u8; RECORD]) -> Result<Option<Vec<Segment>>, TarError> {
        for byte in record {
            if *byte != b'\n' {
                self.partial.push(*byte);
                continue;
            }
            let value = number(&std::mem::take(&mut self.partial))?;
            match self.wanted {
                None => {
                    let pieces = usize::try_from(value).unwrap_or(usize::MAX);
                    if pieces > SPARSE_PIECES_MAX {
                        return Err(TarError::TooLong("a sparse map"));
                    }
                    self.wanted = Some(2 * pieces);
                }
                Some(_) => self.lines.push(value),
            }
            if self.wanted == Some(self.lines.len()) {
                let pairs = self.lines.chunks_exact(2);
                return Ok(Some(pairs.map(|p| Segment { offset: p[0], len: p[1] }).collect()));
            }
        }
        if self.partial.len() > RECORD { Err(TarError::BadHeader("sparse map")) } else { Ok(None) }
    }
}

/// Checks that segments rise, do not overlap, end within `real` bytes and hold exactly `stored` bytes.
pub(super) fn check(segments: &[Segment], stored: u64, real: u64) -> Result<(), TarError> {
    let mut end = 0u64;
    let mut sum = 0u64;
    for segment in segments {
        let next = segment.offset.checked_add(segment.len).filter(|next| *next <= real && segment.offset >= end);
        end = next.ok_or(TarError::BadHeader("sparse map"))?;
        sum += segment.len;
    }
    if sum == stored { Ok(()) } else { Err(TarError::BadHeader("sparse map")) }
}

/// Adds a segment within the limit.
pub(super) fn push(out: &mut Vec<Segment>, segment: Segment) -> Result<(), TarError> {
    if out.len() >= SPARSE_PIECES_MAX {
        return Err(TarError::TooLong("a sparse map"));
    }
    out.push(segment);
    Ok(())
}

fn number(text: &[u8]) -> Result<u64, TarError> {
    decimal(text).ok_or(TarError::BadHeader("sparse map"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_checked() {
        let map = pax_map(b"0,10,20,5").unwrap();
        assert!(check(&map, 15, 25).is_ok());
        assert!(check(&map, 15, 24).is_err());
        assert!(check(&map, 16, 25).is_err());
        assert!(check(&pax_map(b"20,5,0,10").unwrap(), 15, 25).is_err());
        assert!(check(&pax_map(b"18446744073709551615,5").unwrap(), 5, u64::MAX).is_err());
        assert!(pax_map(b"1").is_err());
    }

    #[test]
    fn a_map_in_the_data() {
        let mut record = [0; RECORD];
        record[..10].copy_from_slice(b"2\n0\n4\n8\n1\n");
        let map = DataMap::default().feed(&record).unwrap().unwrap();
        assert_eq!(map, [Segment { offset: 0, len: 4 }, Segment { offset: 8, len: 1 }]);
    }
}
