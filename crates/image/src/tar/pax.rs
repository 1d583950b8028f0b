//! PAX extended headers: `length key=value\n` records.

use super::TarError;
use super::sparse::{self, Segment};
use crate::ext4::Xattr;

const XATTR_PREFIX: &[u8] = b"SCHILY.xattr.";

/// What extended headers say of the next entry.
#[derive(Debug, Default, Clone)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<(i64, u32)>,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) sparse: PaxSparse,
}

/// GNU's words for sparse files.
#[derive(Debug, Default, Clone)]
pub(super) struct PaxSparse {
    pub(super) major: Option<u64>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) real_size: Option<u64>,
    pub(super) map: Option<Vec<Segment>>,
    offset: Option<u64>,
}

impl Pax {
    /// Adds the records of `data`; later ones win.
    pub(super) fn parse(&mut self, mut data: &[u8]) -> Result<(), TarError> {
        while !data.is_empty() && data[0] != 0 {
            let (key, value, rest) = record(data).ok_or(TarError::BadHeader("extended header"))?;
            self.set(key, value).ok_or(TarError::BadHeader("extended header"))??;
            data = rest;
        }
        Ok(())
    }

    /// `None` if a value is not what the key wants.
    fn set(&mut self, key: &[u8], value: &[u8]) -> Option<Result<(), TarError>> {
        if let Some(name) = key.strip_prefix(XATTR_PREFIX) {
            self.xattrs.retain(|x| *x.name != *name);
            // An empty value takes the record back, as for every key: no attribute is empty.
            if !value.is_empty() {
                self.xattrs.push(Xattr { name: name.into(), value: value.into() });
            }
            return Some(Ok(()));
        }
        if value.is_empty() {
            return Some(Ok(())); // takes an earlier record back; there is none of interest
        }
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(decimal(value)?),
            b"uid" => self.uid = Some(u32::try_from(decimal(value)?).ok()?),
            b"gid" => self.gid = Some(u32::try_from(decimal(value)?).ok()?),
            b"mtime" => self.mtime = Some(time(value)?),
            _ => return self.sparse.set(key, value),
        }
        Some(Ok(()))
    }
}

impl PaxSparse {
    fn set(&mut self, key: &[u8], value: &[u8]) -> Option<Result<(), TarError>> {
        match key {
            b"GNU.sparse.major" => self.major = Some(decimal(value)?),
            b"GNU.sparse.name" => self.name = Some(value.to_vec()),
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => self.real_size = Some(decimal(value)?),
            b"GNU.sparse.offset" => self.offset = Some(decimal(value)?),
            b"GNU.sparse.numbytes" => {
                let segment = Segment { offset: self.offset.take()?, len: decimal(value)? };
                return Some(sparse::push(self.map.get_or_insert_default(), segment));
            }
            b"GNU.sparse.map" => match sparse::pax_map(value) {
                Ok(map) => self.map = Some(map),
                Err(e) => return Some(Err(e)),
            },
            _ => {}
        }
        Some(Ok(()))
    }
}

/// Key, value and what follows the first record of `data`.
fn record(data: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = data.iter().take(20).position(|b| *b == b' ')?;
    let len = usize::try_from(decimal(&data[..space])?).ok()?;
    let record = data.get(space + 1..len)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|b| *b == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &data[len..]))
}

/// Unsigned decimal digits and nothing else.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// Seconds with an optional fraction and sign, as whole seconds rounded down and nanoseconds.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |b| *b == b'.');
    let seconds = i64::try_from(decimal(parts.next()?)?).ok()?;
    let mut nanos = 0u32;
    let fraction = parts.next().unwrap_or_default();
    for i in 0..9 {
        let digit = fraction.get(i).copied().unwrap_or(b'0');
        nanos = nanos * 10 + u32::from(digit.checked_sub(b'0').filter(|d| *d < 10)?);
    }
    Some(match (negative, nanos) {
        (false, _) => (seconds, nanos),
        (true, 0) => (-seconds, 0),
        (true, _) => (-seconds - 1, 1_000_000_000 - nanos),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn records() {
        let mut pax = Pax::default();
        pax.parse(b"12 path=a/b\n19 mtime=1.5000001\n29 SCHILY.xattr.user.x=a=\n\0b\n").unwrap();
        assert_eq!(pax.path.as_deref(), Some(&b"a/b"[..]));
        assert_eq!(pax.mtime, Some((1, 500_000_100)));
        assert_eq!(*pax.xattrs[0].value, *b"a=\n\0b");
    }

    #[test]
    fn an_empty_value_takes_an_attribute_back() {
        let mut pax = Pax::default();
        pax.parse(b"25 SCHILY.xattr.user.x=a\n24 SCHILY.xattr.user.y=\n24 SCHILY.xattr.user.x=\n").unwrap();
        assert_eq!(pax.xattrs.len(), 0);
    }

    #[test]
    fn times() {
        assert_eq!(time(b"-1.5"), Some((-2, 500_000_000)));
        assert_eq!(time(b"-3"), Some((-3, 0)));
        assert_eq!(time(b"7"), Some((7, 0)));
        assert_eq!(time(b"7.x"), None);
        assert_eq!(time(b""), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Pax::default().parse(&bytes);
        }
    }
}
