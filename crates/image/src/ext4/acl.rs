//! POSIX ACLs: the form that `getxattr` gives, and the shorter one that ext4 keeps on disk.

const XATTR_VERSION: u32 = 2;
const DISK_VERSION: u32 = 1;
const ENTRY_SIZE: usize = 8;
const TAG_OWNER: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_OWNING_GROUP: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;
const TAGS_WITHOUT_ID: [u16; 4] = [TAG_OWNER, TAG_OWNING_GROUP, TAG_MASK, TAG_OTHER];
/// The attribute that decides about access to the file itself.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";

/// The value is not a POSIX ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a POSIX ACL")]
pub struct BadAcl;

/// What `chmod` does to the value of [`ACL_ACCESS`]: owner, mask (without one the owning group) and others get the mode's permissions. What unpacks a
/// layer sets the mode last.
pub fn follow_mode(value: &mut [u8], mode: u16) {
    let tag_of = |entry: &[u8]| u16::from_le_bytes([entry[0], entry[1]]);
    let Some((_, entries)) = value.split_first_chunk_mut::<4>() else { return };
    let has_mask = entries.chunks_exact(ENTRY_SIZE).any(|entry| tag_of(entry) == TAG_MASK);
    let group = if has_mask { TAG_MASK } else { TAG_OWNING_GROUP };
    for entry in entries.chunks_exact_mut(ENTRY_SIZE) {
        let permissions = match tag_of(entry) {
            TAG_OWNER => mode >> 6,
            TAG_OTHER => mode,
            tag if tag == group => mode >> 3,
            _ => continue,
        };
        entry[2..4].copy_from_slice(&(permissions & 7).to_le_bytes());
    }
}

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
    fn the_mode_decides_where_both_speak() {
        let acl = |owner, group, mask: Option<u8>, other| {
            let entries = [(1, Some(owner)), (2, Some(4)), (4, Some(group)), (16, mask), (32, Some(other))];
            let mut value = vec![2, 0, 0, 0];
            for (tag, permissions) in entries {
                value.extend(permissions.into_iter().flat_map(|p| [tag, 0, p, 0, 255, 255, 255, 255]));
            }
            value
        };
        let after = |mut value: Vec<u8>| {
            follow_mode(&mut value, 0o4751);
            value
        };
        assert_eq!(after(acl(6, 4, Some(4), 0)), acl(7, 4, Some(5), 1));
        assert_eq!(after(acl(6, 4, None, 0)), acl(7, 5, None, 1));
        assert_eq!(after(vec![2, 0, 0]), [2, 0, 0]);
        assert_eq!(after(vec![2, 0, 0, 0, 1, 0, 6]), [2, 0, 0, 0, 1, 0, 6]);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [&[][..], &[1, 0, 0, 0], &[2, 0, 0, 0, 1], &[2, 0, 0, 0, 3, 0, 6, 0, 0, 0, 0, 0]] {
            assert_eq!(to_disk(bad), Err(BadAcl));
        }
    }
}
