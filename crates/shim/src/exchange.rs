//! The exchange disk of one machine: whose pieces are lent to which transfer. See [`warren_proto::guest::exchange`].

use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warren_proto::guest::exchange::{PIECE_LEN, PIECES, PIECES_LENT, start_of};

/// Shared by all transfers of a machine; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Exchange(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    memory: File,
    pieces: Mutex<Pieces>,
}

#[derive(Debug)]
struct Pieces {
    /// Those that no transfer has.
    free: Vec<u32>,
    /// How many are never lent again: their transfers ended without the guest's word.
    lost: usize,
}

impl Exchange {
    /// Takes the memory that the guest sees as its disk. The pieces in `lost` are never lent: a guest that goes on from a snapshot may still use them.
    pub(crate) fn new(memory: File, lost: &[u32]) -> Self {
        let free: Vec<u32> = (0..PIECES).filter(|piece| !lost.contains(piece)).collect();
        let pieces = Pieces { lost: PIECES as usize - free.len(), free };
        Self(Arc::new(Inner { memory, pieces: Mutex::new(pieces) }))
    }

    /// The pieces that transfers have, or had when they were given up, and their bytes one after the other.
    pub(crate) fn lent(&self) -> std::io::Result<(Vec<u32>, Vec<u8>)> {
        let lent: Vec<u32> = {
            let pieces = self.0.pieces();
            (0..PIECES).filter(|piece| !pieces.free.contains(piece)).collect()
        };
        let mut bytes = Vec::with_capacity(lent.len() * PIECE_LEN);
        for piece in &lent {
            bytes.extend(self.read(start_of(*piece), PIECE_LEN)?);
        }
        Ok((lent, bytes))
    }

    /// Lends a transfer its pieces, if enough are free.
    pub(crate) fn lend(&self) -> Option<Loan> {
        let free = &mut self.0.pieces().free;
        let at = free.len().checked_sub(PIECES_LENT)?;
        Some(Loan { exchange: self.clone(), pieces: free.split_off(at) })
    }

    /// Puts bytes into a piece.
    pub(crate) fn write(&self, bytes: &[u8], piece: u32, offset: usize) -> std::io::Result<()> {
        self.0.memory.write_all_at(bytes, start_of(piece) + offset as u64)
    }

    /// Takes `len` bytes out, that start at `at` of the disk.
    pub(crate) fn read(&self, at: u64, len: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.memory.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }
}

impl Inner {
    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts the bytes of `pieces`, one after the other in `bytes`, where the guest left them. More or fewer bytes than theirs are an error.
pub(crate) fn put_back(memory: &File, pieces: &[u32], bytes: &[u8]) -> std::io::Result<()> {
    if bytes.len() != pieces.len() * PIECE_LEN || pieces.iter().any(|piece| *piece >= PIECES) {
        return Err(std::io::Error::other("what transfers had of the exchange disk does not fit it"));
    }
    let mut parts = pieces.iter().zip(bytes.chunks(PIECE_LEN));
    parts.try_for_each(|(piece, part)| memory.write_all_at(part, start_of(*piece)))
}

/// Pieces that one transfer works with. They come back when it is dropped.
#[derive(Debug)]
pub(crate) struct Loan {
    exchange: Exchange,
    pieces: Vec<u32>,
}

impl Loan {
    /// The disk.
    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Which.
    pub(crate) fn pieces(&self) -> &[u32] {
        &self.pieces
    }

    /// Gives them up: the guest may still write to them.
    pub(crate) fn lose(mut self) {
        let given_up = std::mem::take(&mut self.pieces).len();
        self.exchange.0.pieces().lost += given_up;
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let inner = &self.exchange.0;
        let mut pieces = inner.pieces();
        pieces.free.append(&mut self.pieces);
        if pieces.free.len() + pieces.lost == PIECES as usize {
            // Nothing is under way: the memory goes back to the machine. If it cannot, it stays, and is bounded.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&inner.memory, flags, 0, start_of(PIECES));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn exchange() -> Exchange {
        let memory = File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        memory.set_len(start_of(PIECES)).unwrap();
        Exchange::new(memory, &[])
    }

    #[test]
    fn no_piece_is_lent_twice_and_memory_goes_when_all_are_back() {
        let exchange = exchange();
        let loans: Vec<Loan> = std::iter::from_fn(|| exchange.lend()).collect();
        let mut pieces: Vec<u32> = loans.iter().flat_map(|loan| loan.pieces().to_vec()).collect();
        pieces.sort_unstable();
        assert_eq!(pieces, (0..PIECES).collect::<Vec<_>>());
        exchange.write(b"some", 3, 9).unwrap();
        assert_eq!(exchange.read(start_of(3) + 10, 3).unwrap(), b"ome");
        assert!(exchange.0.memory.metadata().unwrap().blocks() > 0);
        drop(loans);
        assert_eq!(exchange.0.memory.metadata().unwrap().blocks(), 0);
        assert!(exchange.lend().is_some());
    }

    #[test]
    fn what_was_lent_goes_with_a_snapshot() {
        let exchange = exchange();
        let loan = exchange.lend().unwrap();
        exchange.write(b"some", loan.pieces()[1], 0).unwrap();
        let (lent, bytes) = exchange.lent().unwrap();
        assert_eq!((lent.len(), bytes.len()), (PIECES_LENT, PIECES_LENT * PIECE_LEN));
        let memory = File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        put_back(&memory, &lent, &bytes).unwrap();
        assert!(
            put_back(&memory, &lent, &bytes[1..]).is_err()
                && put_back(&memory, &[PIECES], &bytes[..PIECE_LEN]).is_err()
        );
        let child = Exchange::new(memory, &lent);
        assert_eq!(child.read(start_of(loan.pieces()[1]), 4).unwrap(), b"some");
        let lendable: Vec<Loan> = std::iter::from_fn(|| child.lend()).collect();
        assert!(lendable.iter().flat_map(|loan| loan.pieces()).all(|piece| !lent.contains(piece)));
        assert_eq!(lendable.len(), (PIECES as usize - PIECES_LENT) / PIECES_LENT);
    }

    #[test]
    fn lost_pieces_do_not_come_back() {
        let exchange = exchange();
        exchange.lend().unwrap().lose();
        let lendable: Vec<Loan> = std::iter::from_fn(|| exchange.lend()).collect();
        assert_eq!(lendable.len() * PIECES_LENT, PIECES as usize - PIECES_LENT);
        exchange.write(b"some", 0, 0).unwrap();
        drop(lendable);
        assert_eq!(exchange.0.memory.metadata().unwrap().blocks(), 0);
    }
}
