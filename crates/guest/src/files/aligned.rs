use bytes::Bytes;
use warren_proto::guest::exchange::ALIGN;

/// Memory at an address that reads and writes past the page cache take.
#[derive(Debug)]
pub(super) struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// `len` zeros.
    pub(super) fn new(len: usize) -> Self {
        let memory = vec![0; len + ALIGN];
        // Always found within ALIGN bytes of plain memory.
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self { memory, start, len }
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    /// The bytes, to be changed.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    /// The first `len` of them, without a copy.
    pub(super) fn into_bytes(self, len: usize) -> Bytes {
        let len = len.min(self.len);
        Bytes::from(self.memory).slice(self.start..self.start + len)
    }
}
