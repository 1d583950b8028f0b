//! POSIX ACLs: the form that `getxattr` gives, and the shorter one that ext4 keeps on disk.

const XATTR_VERSION: u32 = 2;
const DISK_VERSION: u32 = 1;
const ENTRY_SIZE: usize = 8;
const TAG_USER: u16 = 0x02;
const TAG_GROUP: u16 = 0x08;
const TAGS_WITHOUT_ID: [u16; 4] = [0x01, 0x04, 0x10, 0x20];

/// The value is not a POSIX ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a POSIX ACL")]
pub struct BadAcl;

/// The on-disk form of the value of a `system.posix_acl_*` attribute.
pub(super) fn to_disk(value: &[u8]) -> Result<Vec<u8>, BadAcl> {
    let (version, entries) = value.split_first_chunk::<4>().ok_or(BadAcl)?;
    if u32::from_le_bytes(*version) != XATTR_VERSION || entries.len() % ENTRY_SIZE != 0 {
        return Err(BadAcl);
    }
    let mut out = DISK_VERSION.to_le_bytes().to_vec();
    for entry in entries.chunks_exact(ENTRY_SIZE) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let permissions = u16::from_le_bytes([entry[2], entry[3]]);
        if permissions > 7 {
            return Err(BadAcl);
        }
        match tag {
            TAG_USER | TAG_GROUP => out.extend_from_slice(entry),
            tag if TAGS_WITHOUT_ID.contains(&tag) => out.extend_from_slice(&entry[..4]),
            _ => return Err(BadAcl),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_entries_keep_an_id() {
        let value = [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 232, 3, 0, 0];
        assert_eq!(to_disk(&value).unwrap(), [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 232, 3, 0, 0]);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [&[][..], &[1, 0, 0, 0], &[2, 0, 0, 0, 1], &[2, 0, 0, 0, 3, 0, 6, 0, 0, 0, 0, 0]] {
            assert_eq!(to_disk(bad), Err(BadAcl));
        }
    }
}
