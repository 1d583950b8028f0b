use super::CHUNK;
use std::fmt;

/// Name of a chunk: the BLAKE3 hash of its 64 KiB. Not SHA-256: a third of those hashes in a pull would take as long as all else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChunkId(pub(crate) [u8; 32]);

impl ChunkId {
    /// Of these bytes.
    pub(crate) fn of(bytes: &[u8; CHUNK]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
