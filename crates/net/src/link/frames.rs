//! The framing of QEMU's `-netdev stream`: a 4-byte size, big-endian, then the frame.

use crate::wire::ETHER_LEN;
use std::io;

/// Largest frame, bytes: the largest IPv4 packet behind a header with a VLAN tag.
const FRAME_MAX: usize = ETHER_LEN + 4 + u16::MAX as usize;
/// Size of the read buffer, bytes: holds any frame whole.
pub(super) const READ_BYTES: usize = 128 << 10;

const _: () = assert!(READ_BYTES >= 4 + FRAME_MAX);

/// Splits the first frame off `bytes`; `None` if it is not whole yet. A frame beyond any size that QEMU sends is an error.
pub(super) fn split(bytes: &[u8]) -> io::Result<Option<(&[u8], &[u8])>> {
    let Some((size, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let size = u32::from_be_bytes(*size) as usize;
    if size > FRAME_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {size} bytes")));
    }
    Ok(rest.split_at_checked(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_too_long_is_an_error() {
        assert!(split(&(FRAME_MAX as u32).to_be_bytes()).unwrap().is_none());
        assert!(split(&(FRAME_MAX as u32 + 1).to_be_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(frames: Vec<Vec<u8>>, cut in any::<prop::sample::Index>()) {
            let bytes: Vec<u8> = frames.iter().flat_map(|f| [&(f.len() as u32).to_be_bytes()[..], f].concat()).collect();
            let mut rest = &bytes[..];
            for frame in &frames {
                let (head, behind) = split(rest).unwrap().unwrap();
                prop_assert_eq!(head, &frame[..]);
                rest = behind;
            }
            prop_assert!(rest.is_empty());
            if let Some(first) = frames.first() {
                let cut = cut.index(first.len() + 4);
                prop_assert!(split(&bytes[..cut]).unwrap().is_none());
            }
        }
    }
}
