//! Long messages on their way in.
//!
//! Hundreds of calls may be sending one at the same time, and none of them must wait for another with its window used up: that
//! would stop the whole connection. So what comes is taken at once, and beyond a small length kept in an anonymous file: memory
//! of the guest, but neither of the agent nor of the connection. It comes back into the agent's memory whole, for the short time
//! in which the call is understood and acted upon.

use crate::http::{BodyError, Incoming};
use bytes::{Bytes, BytesMut};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::{self, Read, Seek, Write};

/// What is kept in the agent's own memory of one message, bytes.
const IN_MEMORY_LEN_MAX: usize = 32 << 10;

/// A message of which some has come.
#[derive(Default)]
pub(super) struct Spill {
    memory: BytesMut,
    file: Option<File>,
    len: usize,
}

impl Spill {
    /// Receives a whole body of at most `len_max` bytes.
    pub(super) async fn receive(body: &mut Incoming, len_max: usize) -> Result<Bytes, BodyError> {
        let Some(first) = body.next().await? else { return Ok(Bytes::new()) };
        if first.len() <= len_max && body.is_at_end() {
            return Ok(first);
        }
        let mut spill = Self::default();
        let mut next = Some(first);
        while let Some(part) = next {
            if spill.len + part.len() > len_max {
                return Err(BodyError::TooLong(len_max));
            }
            spill.push(&part)?;
            drop(part);
            next = body.next().await?;
        }
        Ok(spill.into_bytes()?)
    }

    fn push(&mut self, part: &[u8]) -> io::Result<()> {
        self.len += part.len();
        if let Some(file) = &mut self.file {
            return file.write_all(part);
        }
        if self.len <= IN_MEMORY_LEN_MAX {
            self.memory.extend_from_slice(part);
            return Ok(());
        }
        let mut file = File::from(rustix::fs::memfd_create("message", MemfdFlags::CLOEXEC)?);
        file.write_all(&std::mem::take(&mut self.memory))?;
        file.write_all(part)?;
        self.file = Some(file);
        Ok(())
    }

    fn into_bytes(self) -> io::Result<Bytes> {
        let Some(mut file) = self.file else { return Ok(self.memory.freeze()) };
        file.rewind()?;
        let mut whole = Vec::with_capacity(self.len);
        file.read_to_end(&mut whole)?;
        Ok(whole.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_come_back_whole() {
        for len in [0, 1, IN_MEMORY_LEN_MAX, IN_MEMORY_LEN_MAX + 1, 5 * IN_MEMORY_LEN_MAX] {
            let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut spill = Spill::default();
            data.chunks(1000).for_each(|part| spill.push(part).unwrap());
            assert_eq!(spill.file.is_some(), len > IN_MEMORY_LEN_MAX);
            assert_eq!(spill.into_bytes().unwrap(), data);
        }
    }
}
