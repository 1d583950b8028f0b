use super::header::{self, Header, RECORD};
use super::pax::Pax;
use super::sparse::{self, DataMap, Segment};
use super::{Entry, EntryKind, TarError};
use crate::ext4::Meta;
use crate::limits::{PATH_LEN_MAX, TAR_HEADERS_BYTES_MAX};
use std::io::{ErrorKind, Read};

/// Bytes read from the source at once.
const BUFFER_LEN: usize = 1 << 20;

/// A part of a file's data, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// So many zeroes that are not stored.
    Hole(u64),
}

/// Reads the entries of a tar one after the other.
#[derive(Debug)]
pub struct Reader<R> {
    source: Buffer<R>,
    global: Pax,
    body: Body,
}

/// What is left of the current file.
#[derive(Debug, Default)]
struct Body {
    /// Segments to come, the next one last.
    segments: Vec<Segment>,
    /// Place in the file.
    at: u64,
    /// Length of the file.
    size: u64,
    /// Padding after the stored bytes.
    padding: u64,
}

impl<R: Read> Reader<R> {
    /// Reads from `source`, which need not be buffered.
    pub fn new(source: R) -> Self {
        Self { source: Buffer::new(source), global: Pax::default(), body: Body::default() }
    }

    /// The next entry; what was left of the last one is skipped. `None` at the end.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, TarError> {
        while self.next_piece()?.is_some() {}
        let mut pax = self.global.clone();
        let mut long_path = None;
        let mut long_link = None;
        let mut budget = TAR_HEADERS_BYTES_MAX;
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            match header.kind {
                b'x' => pax.parse(&self.extra(&header, &mut budget)?)?,
                b'g' => {
                    let data = self.extra(&header, &mut budget)?;
                    self.global.parse(&data)?;
                    pax.parse(&data)?;
                }
                b'L' => long_path = Some(self.extra_text(&header, &mut budget)?),
                b'K' => long_link = Some(self.extra_text(&header, &mut budget)?),
                // A volume label.
                b'V' => self.source.skip(padded(header.size))?,
                _ => {
                    pax.path = pax.path.or(long_path);
                    pax.link = pax.link.or(long_link);
                    return self.entry(header, pax).map(Some);
                }
            }
        }
    }

    /// Length of the current file, bytes, as its header says.
    pub fn file_size(&self) -> u64 {
        self.body.size
    }

    /// The next part of the current file's data; `None` at its end.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, TarError> {
        let body = &mut self.body;
        while body.segments.last().is_some_and(|s| s.len == 0) {
            body.segments.pop();
        }
        let next = body.segments.last_mut();
        let data_at = next.as_ref().map_or(body.size, |s| s.offset);
        if data_at > body.at {
            let hole = data_at - body.at;
            body.at = data_at;
            return Ok(Some(Piece::Hole(hole)));
        }
        let Some(segment) = next else {
            self.source.skip(std::mem::take(&mut body.padding))?;
            return Ok(None);
        };
        let bytes = self.source.some(segment.len)?;
        let len = bytes.len() as u64;
        body.at += len;
        segment.offset += len;
        segment.len -= len;
        Ok(Some(Piece::Bytes(bytes)))
    }

    /// Offset and length in the source of the current file's data, before any of it was read; `None` for a sparse file.
    pub fn stored_range(&self) -> Option<(u64, u64)> {
        let len = self.body.segments.first().map_or(0, |s| s.len);
        (self.body.segments.len() <= 1 && len == self.body.size).then_some((self.source.consumed(), len))
    }

    /// Reads to the end of the source, past the end of the tar.
    pub fn drain(mut self) -> Result<(), TarError> {
        while self.source.fill()? > 0 {
            self.source.clear();
        }
        Ok(())
    }

    fn header(&mut self) -> Result<Option<Header>, TarError> {
        let Some(record) = self.source.record()? else { return Ok(None) };
        header::parse(&record)
    }

    /// The data of an extended header.
    fn extra(&mut self, header: &Header, budget: &mut u64) -> Result<Vec<u8>, TarError> {
        *budget = budget.checked_sub(header.size).ok_or(TarError::TooLong("an extended header"))?;
        let mut data = self.source.exact(header.size)?;
        self.source.skip(padded(header.size) - header.size)?;
        data.shrink_to_fit();
        Ok(data)
    }

    fn extra_text(&mut self, header: &Header, budget: &mut u64) -> Result<Vec<u8>, TarError> {
        Ok(header::text(&self.extra(header, budget)?).to_vec())
    }

    fn entry(&mut self, mut header: Header, mut pax: Pax) -> Result<Entry, TarError> {
        let sparse_name = pax.sparse.name.take();
        let path = sparse_name.or(pax.path.take()).unwrap_or(std::mem::take(&mut header.path));
        let link = pax.link.take().unwrap_or(std::mem::take(&mut header.link));
        header.size = pax.size.unwrap_or(header.size);
        if path.len() > PATH_LEN_MAX || link.len() > PATH_LEN_MAX {
            return Err(TarError::TooLong("a path"));
        }
        if path.contains(&0) || link.contains(&0) {
            return Err(TarError::BadHeader("a NUL in a path"));
        }
        let kind = kind(&header, &path, link)?;
        if kind == EntryKind::File {
            self.start_body(&header, &mut pax)?;
        } else if header.kind == b'D' {
            self.body = Body { padding: padded(header.size), ..Body::default() };
        }
        let (mtime_s, mtime_ns) = pax.mtime.unwrap_or((header.mtime, 0));
        let meta = Meta {
            mode: header.mode,
            uid: pax.uid.unwrap_or(header.uid),
            gid: pax.gid.unwrap_or(header.gid),
            mtime_s,
            mtime_ns,
        };
        Ok(Entry { path, kind, meta, xattrs: pax.xattrs })
    }

    fn start_body(&mut self, header: &Header, pax: &mut Pax) -> Result<(), TarError> {
        let mut stored = header.size;
        let padding = padded(stored) - stored;
        let (mut segments, size) = if let Some((segments, more, real)) = &header.sparse {
            let mut segments = segments.clone();
            self.more_gnu_segments(*more, &mut segments)?;
            (segments, *real)
        } else if pax.sparse.major == Some(1) {
            let (segments, used) = self.map_from_data(stored)?;
            stored -= used;
            (segments, pax.sparse.real_size.ok_or(TarError::BadHeader("sparse size"))?)
        } else if let Some(segments) = pax.sparse.map.take() {
            (segments, pax.sparse.real_size.ok_or(TarError::BadHeader("sparse size"))?)
        } else {
            (vec![Segment { offset: 0, len: stored }], stored)
        };
        sparse::check(&segments, stored, size)?;
        segments.reverse();
        self.body = Body { segments, at: 0, size, padding };
        Ok(())
    }

    fn more_gnu_segments(&mut self, mut more: bool, segments: &mut Vec<Segment>) -> Result<(), TarError> {
        while more {
            let record = self.source.record()?.ok_or(TarError::CutOff)?;
            sparse::gnu_segments(&record[..504], segments)?;
            more = record[504] != 0;
        }
        Ok(())
    }

    fn map_from_data(&mut self, stored: u64) -> Result<(Vec<Segment>, u64), TarError> {
        let mut map = DataMap::default();
        let mut used = 0;
        while used + RECORD as u64 <= padded(stored) {
            let record = self.source.record()?.ok_or(TarError::CutOff)?;
            used += RECORD as u64;
            if let Some(segments) = map.feed(&record)? {
                return Ok((segments, used.min(stored)));
            }
        }
        Err(TarError::BadHeader("sparse map"))
    }
}

fn kind(header: &Header, path: &[u8], link: Vec<u8>) -> Result<EntryKind, TarError> {
    Ok(match header.kind {
        // Before POSIX, a directory was a file whose name ends in a slash.
        b'0' | 0 if path.ends_with(b"/") && header.size == 0 => EntryKind::Dir,
        b'0' | 0 | b'7' | b'S' => EntryKind::File,
        b'1' => EntryKind::HardLink(link),
        b'2' => EntryKind::Symlink(link),
        b'3' => EntryKind::CharDevice(header.major, header.minor),
        b'4' => EntryKind::BlockDevice(header.major, header.minor),
        b'5' | b'D' => EntryKind::Dir,
        b'6' => EntryKind::Fifo,
        other => {
            let path = String::from_utf8_lossy(path).into_owned();
            return Err(TarError::UnknownKind { path, kind: other.into() });
        }
    })
}

fn padded(size: u64) -> u64 {
    size.checked_next_multiple_of(RECORD as u64).unwrap_or(size)
}

/// Reads ahead in large steps.
#[derive(Debug)]
struct Buffer<R> {
    source: R,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes read from the source.
    read: u64,
}

impl<R: Read> Buffer<R> {
    fn new(source: R) -> Self {
        Self { source, bytes: vec![0; BUFFER_LEN], start: 0, end: 0, read: 0 }
    }

    /// Place in the source of the next byte.
    fn consumed(&self) -> u64 {
        self.read - (self.end - self.start) as u64
    }

    /// Up to `max` bytes, at least one.
    fn some(&mut self, max: u64) -> Result<&[u8], TarError> {
        if self.start == self.end && self.fill()? == 0 {
            return Err(TarError::CutOff);
        }
        let len = usize::try_from(max).unwrap_or(usize::MAX).min(self.end - self.start);
        self.start += len;
        Ok(&self.bytes[self.start - len..self.start])
    }

    /// Exactly `len` bytes; `len` is within limits.
    fn exact(&mut self, len: u64) -> Result<Vec<u8>, TarError> {
        let mut out = Vec::new();
        while (out.len() as u64) < len {
            let left = len - out.len() as u64;
            out.extend_from_slice(self.some(left)?);
        }
        Ok(out)
    }

    /// One record; `None` at the end of the source.
    fn record(&mut self) -> Result<Option<[u8; RECORD]>, TarError> {
        if self.start == self.end && self.fill()? == 0 {
            return Ok(None);
        }
        let mut record = [0; RECORD];
        let mut filled = 0;
        while filled < RECORD {
            let some = self.some((RECORD - filled) as u64)?;
            record[filled..filled + some.len()].copy_from_slice(some);
            filled += some.len();
        }
        Ok(Some(record))
    }

    fn skip(&mut self, mut len: u64) -> Result<(), TarError> {
        while len > 0 {
            len -= self.some(len)?.len() as u64;
        }
        Ok(())
    }

    /// Reads into the empty buffer.
    fn fill(&mut self) -> Result<usize, TarError> {
        self.start = 0;
        self.end = 0;
        loop {
            match self.source.read(&mut self.bytes) {
                Ok(n) => {
                    self.end = n;
                    self.read += n as u64;
                    return Ok(n);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(TarError::Read(e)),
            }
        }
    }

    fn clear(&mut self) {
        self.start = self.end;
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
