//! A disk of chunks as a read-only qcow2, version 3, whose tables lie between the chunks. Pure. Format: QEMU's `docs/interop/qcow2.txt`.
//!
//! All offsets count from the header, wherever that lies in the file; QEMU is told by its `raw` driver's `offset`.

use super::{CHUNK, slot_at};

/// Entries of one table of the second level.
pub(crate) const ENTRIES: usize = CHUNK / 8;
/// Bytes of disk that one table of the second level maps.
pub(crate) const TABLE_BYTES: u64 = (ENTRIES * CHUNK) as u64;
/// Largest disk, bytes: its table of the first level is one slot.
pub(crate) const DISK_SIZE_MAX: u64 = ENTRIES as u64 * TABLE_BYTES;
/// Where a header holds the offset of the table of the first level.
pub(super) const L1_OFFSET_AT: usize = 40;
/// Bits of an entry that are an offset.
pub(super) const OFFSET_MASK: u64 = 0x00FF_FFFF_FFFF_FE00;

const CLUSTER_BITS: u32 = CHUNK.trailing_zeros();
const HEADER_LEN: u32 = 104;
const REFCOUNT_ORDER: u32 = 4;

/// Distance of a slot from the header, bytes.
pub(super) fn offset(header: u32, slot: u32) -> u64 {
    slot_at(slot) - slot_at(header)
}

/// The header of a disk of `size` bytes whose table of the first level is in slot `l1`.
pub(super) fn header(header: u32, l1: u32, size: u64) -> Vec<u8> {
    let l1_entries = size.div_ceil(TABLE_BYTES) as u32;
    let l1 = offset(header, l1);
    let mut out = Vec::with_capacity(HEADER_LEN as usize + 8);
    let mut words = |wide: &[u64], narrow: &[u32]| {
        wide.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
        narrow.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    };
    // Magic, version; backing file; cluster size.
    words(&[], &[0x5146_49FB, 3]);
    words(&[0], &[0, CLUSTER_BITS]);
    words(&[size], &[0, l1_entries]);
    // What is only read needs no reference counts; some table must be named all the same.
    words(&[l1, l1], &[1, 0]);
    // Snapshots; features.
    words(&[0, 0, 0, 0], &[REFCOUNT_ORDER, HEADER_LEN]);
    // End of the header's extensions.
    words(&[0], &[]);
    out
}

/// A table that leads to `slots`, each at its index.
pub(super) fn table(header: u32, slots: impl Iterator<Item = (usize, u32)>) -> Vec<u8> {
    let mut out = vec![0; CHUNK];
    for (index, slot) in slots {
        if let Some(entry) = out.get_mut(8 * index..8 * index + 8) {
            entry.copy_from_slice(&offset(header, slot).to_be_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_names_the_first_table() {
        let header = header(3, 20, 5 << 30);
        assert_eq!(header.len(), 112);
        let word = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().unwrap());
        assert_eq!((word(L1_OFFSET_AT), word(24)), (17 << 16, 5 << 30));
        assert_eq!(u32::from_be_bytes(header[36..40].try_into().unwrap()), 10);
    }
}
