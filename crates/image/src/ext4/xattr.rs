//! Extended attributes on disk: at the end of the inode, then in one block of their own.

use super::acl::{self, BadAcl};
use super::bytes::PutLe;
use super::inode::XATTR_ROOM;
use super::layout::BLOCK;
use super::tree::Xattr;

const MAGIC: u32 = 0xEA02_0000;
const BLOCK_HEADER: usize = 32;
const INODE_HEADER: usize = 4;
const ENTRY_HEADER: usize = 16;
/// An entry of zeroes ends the list.
const TERMINATOR: usize = 4;
const NAME_LEN_MAX: usize = 255;

/// The attributes of one file cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum XattrError {
    /// A value of `system.posix_acl_*` makes no sense.
    #[error(transparent)]
    BadAcl(#[from] BadAcl),
    /// More than the inode and one block hold.
    #[error("more than {BLOCK} bytes of extended attributes on one file")]
    TooLarge,
}

/// The attributes of one file on disk.
#[derive(Debug)]
pub(super) struct Encoded {
    /// At the end of the inode.
    pub in_inode: [u8; XATTR_ROOM],
    /// In a block of their own, if they do not fit the inode.
    pub block: Option<Vec<u8>>,
}

struct Item<'a> {
    index: u8,
    suffix: &'a [u8],
    value: Vec<u8>,
}

impl Item<'_> {
    fn size(&self) -> usize {
        ENTRY_HEADER + self.suffix.len().next_multiple_of(4) + self.value.len().next_multiple_of(4)
    }
}

/// Whether ext4 can hold an attribute of this name; others are dropped, as Docker does where the file system refuses them.
pub fn supported(name: &[u8]) -> bool {
    split(name).is_some()
}

/// Lays out `xattrs`: small ones in the inode, the others in the block. Names that are not [`supported`] are left out.
pub(super) fn encode(xattrs: &[Xattr]) -> Result<Encoded, XattrError> {
    let mut items = Vec::with_capacity(xattrs.len());
    for xattr in xattrs {
        let Some((index, suffix)) = split(&xattr.name) else { continue };
        let value = if is_acl(index) { acl::to_disk(&xattr.value)? } else { xattr.value.to_vec() };
        items.push(Item { index, suffix, value });
    }
    items.sort_by_key(Item::size);
    let mut left = XATTR_ROOM - INODE_HEADER - TERMINATOR;
    let fitting = items
        .iter()
        .take_while(|item| {
            let fits = item.size() <= left;
            left -= if fits { item.size() } else { 0 };
            fits
        })
        .count();
    let for_block = items.split_off(fitting);
    let mut in_inode = [0; XATTR_ROOM];
    if !items.is_empty() {
        in_inode.put_u32(0, MAGIC);
        put_items(&mut in_inode, INODE_HEADER, INODE_HEADER, &items);
    }
    let block = if for_block.is_empty() { None } else { Some(encode_block(for_block)?) };
    Ok(Encoded { in_inode, block })
}

fn split(name: &[u8]) -> Option<(u8, &[u8])> {
    match name {
        acl::ACL_ACCESS => return Some((2, b"")),
        b"system.posix_acl_default" => return Some((3, b"")),
        _ => {}
    }
    let (index, suffix) = [(1, &b"user."[..]), (4, b"trusted."), (6, b"security.")]
        .into_iter()
        .find_map(|(index, prefix)| Some((index, name.strip_prefix(prefix)?)))?;
    (!suffix.is_empty() && suffix.len() <= NAME_LEN_MAX && !suffix.contains(&0)).then_some((index, suffix))
}

fn is_acl(index: u8) -> bool {
    matches!(index, 2 | 3)
}

fn encode_block(mut items: Vec<Item<'_>>) -> Result<Vec<u8>, XattrError> {
    if BLOCK_HEADER + TERMINATOR + items.iter().map(Item::size).sum::<usize>() > BLOCK {
        return Err(XattrError::TooLarge);
    }
    // The kernel searches a block in this order.
    items.sort_by(|a, b| (a.index, a.suffix.len(), a.suffix).cmp(&(b.index, b.suffix.len(), b.suffix)));
    let mut out = vec![0; BLOCK];
    out.put_u32(0, MAGIC);
    out.put_u32(4, 1); // references
    out.put_u32(8, 1); // blocks
    let hash = put_items(&mut out, BLOCK_HEADER, 0, &items);
    out.put_u32(12, hash);
    Ok(out)
}

/// Writes entries from `at` up and values from the end down, value offsets counted from `base`. Returns the hash of all.
fn put_items(out: &mut [u8], mut at: usize, base: usize, items: &[Item<'_>]) -> u32 {
    let mut value_at = out.len();
    let mut all: u32 = 0;
    for item in items {
        value_at -= item.value.len().next_multiple_of(4);
        out[value_at..value_at + item.value.len()].copy_from_slice(&item.value);
        let padded = &out[value_at..value_at + item.value.len().next_multiple_of(4)];
        let hash = entry_hash(item.suffix, padded);
        all = all.rotate_left(16) ^ hash;
        let entry = &mut out[at..];
        entry[0] = item.suffix.len() as u8;
        entry[1] = item.index;
        entry.put_u16(2, if item.value.is_empty() { 0 } else { (value_at - base) as u16 });
        entry.put_u32(8, item.value.len() as u32);
        entry.put_u32(12, hash);
        entry[ENTRY_HEADER..ENTRY_HEADER + item.suffix.len()].copy_from_slice(item.suffix);
        at += ENTRY_HEADER + item.suffix.len().next_multiple_of(4);
    }
    all
}

fn entry_hash(name: &[u8], padded_value: &[u8]) -> u32 {
    let hash = name.iter().fold(0u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
    padded_value
        .chunks_exact(4)
        .fold(hash, |hash, word| hash.rotate_left(16) ^ u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr(name: &str, len: usize) -> Xattr {
        Xattr { name: name.as_bytes().into(), value: vec![7; len].into() }
    }

    #[test]
    fn small_ones_go_into_the_inode() {
        let encoded = encode(&[xattr("security.capability", 20)]).unwrap();
        assert!(encoded.block.is_none());
        assert_eq!(encoded.in_inode[..4], MAGIC.to_le_bytes());
    }

    #[test]
    fn large_ones_go_into_a_block_and_too_large_ones_are_refused() {
        assert!(encode(&[xattr("user.a", 20), xattr("user.b", 300)]).unwrap().block.is_some());
        assert_eq!(encode(&[xattr("user.a", 4090)]).unwrap_err(), XattrError::TooLarge);
    }

    #[test]
    fn unknown_names_are_left_out() {
        for name in ["com.apple.quarantine", "user.", "system.data", "security"] {
            assert!(!supported(name.as_bytes()), "{name}");
        }
    }
}
