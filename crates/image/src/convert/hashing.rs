use sha2::{Digest as _, Sha256};
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that were read so far and their hash, seen from outside the reader.
#[derive(Debug, Clone, Default)]
pub struct Sha256Hex(Arc<Mutex<(Sha256, u64)>>);

impl Sha256Hex {
    /// The hash of all bytes so far, in lower-case hexadecimal.
    pub fn hex(&self) -> String {
        let hash = self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone().finalize();
        hash.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// How many bytes so far.
    pub fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn update(&self, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.update(bytes);
        state.1 += bytes.len() as u64;
    }
}

/// Hashes what passes.
#[derive(Debug)]
pub struct HashingReader<R> {
    inner: R,
    hash: Sha256Hex,
}

impl<R: Read> HashingReader<R> {
    /// A reader of `inner`, and the hash that grows with it.
    pub fn new(inner: R) -> (Self, Sha256Hex) {
        let hash = Sha256Hex::default();
        (Self { inner, hash: hash.clone() }, hash)
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buf)?;
        self.hash.update(&buf[..len]);
        Ok(len)
    }
}
