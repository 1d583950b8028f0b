//! The server name of a TLS ClientHello (RFC 8446, 4.1.2; RFC 6066, 3).

use super::{Presented, parsed};

/// Content type of a handshake record.
pub(super) const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const NAME_TYPE_HOST: u8 = 0;

/// Reads the server name from the first records of a TLS connection.
pub(super) fn name(records: &[u8]) -> Presented {
    let (handshake, whole) = handshake(records);
    let Some((&[kind, l0, l1, l2], body)) = handshake.split_first_chunk() else {
        return if whole { Presented::Unclear } else { Presented::None };
    };
    if kind != CLIENT_HELLO {
        return Presented::None;
    }
    let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
    match body.get(..length) {
        Some(hello) => server_name(hello).map_or(Presented::None, parsed),
        None if whole => Presented::Unclear,
        None => Presented::None,
    }
}

/// Joins the handshake records at the head of `bytes`. False if another record or nonsense follows, so that no more of them come.
fn handshake(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut joined = Vec::new();
    while let Some((&[kind, major, _, l0, l1], rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        if kind != HANDSHAKE || major != 3 || length == 0 {
            return (joined, false);
        }
        let (fragment, behind) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        joined.extend_from_slice(fragment);
        bytes = behind;
    }
    (joined, true)
}

fn server_name(hello: &[u8]) -> Option<&[u8]> {
    let rest = hello.get(2 + 32..)?;
    let (_session, rest) = vector(rest, 1)?;
    let (_ciphers, rest) = vector(rest, 2)?;
    let (_compressions, rest) = vector(rest, 1)?;
    let (mut extensions, _) = vector(rest, 2)?;
    while let Some((kind, rest)) = extensions.split_first_chunk::<2>() {
        let (body, behind) = vector(rest, 2)?;
        if u16::from_be_bytes(*kind) == EXTENSION_SERVER_NAME {
            return host_of_list(body);
        }
        extensions = behind;
    }
    None
}

fn host_of_list(body: &[u8]) -> Option<&[u8]> {
    let (mut names, _) = vector(body, 2)?;
    while let Some((&kind, rest)) = names.split_first() {
        let (name, behind) = vector(rest, 2)?;
        if kind == NAME_TYPE_HOST {
            return Some(name);
        }
        names = behind;
    }
    None
}

/// Splits off a vector with a length of `width` (1 or 2) bytes in front.
fn vector(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(width)?;
    let length = length.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
    rest.split_at_checked(length)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use warren_model::egress::HostName;

    fn with_length(width: usize, body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32).to_be_bytes()[4 - width..], body].concat()
    }

    /// A ClientHello as one handshake message.
    fn hello(name: Option<&str>) -> Vec<u8> {
        let server_name = name.map(|name| {
            let host = [&[NAME_TYPE_HOST][..], &with_length(2, name.as_bytes())].concat();
            [&[0, 0][..], &with_length(2, &with_length(2, &host))].concat()
        });
        let other = [&[0, 43][..], &with_length(2, &[2, 3, 4])].concat();
        let extensions = [other, server_name.unwrap_or_default()].concat();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &with_length(1, &[1; 32]),
            &with_length(2, &[0x13, 0x01]),
            &with_length(1, &[0]),
            &with_length(2, &extensions),
        ]
        .concat();
        [&[CLIENT_HELLO][..], &with_length(3, &body)].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|part| [&[HANDSHAKE, 3, 1][..], &with_length(2, part)].concat()).collect()
    }

    #[test]
    fn the_name_is_found_however_the_message_is_cut() {
        let name_of = |bytes: &[u8]| name(bytes);
        let expected = Presented::Name(HostName::parse("a.example").unwrap());
        for size in [1, 7, 50, 1000] {
            let bytes = records(&hello(Some("A.example")), size);
            assert_eq!(name_of(&bytes), expected, "{size}");
            for cut in 1..bytes.len() {
                assert_eq!(name_of(&bytes[..cut]), Presented::Unclear, "{size} {cut}");
            }
        }
    }

    #[test]
    fn no_name() {
        assert_eq!(name(&records(&hello(None), 1000)), Presented::None);
        assert_eq!(name(&records(&hello(Some("1.2.3.4")), 1000)), Presented::None);
        assert_eq!(name(&records(&[2, 0, 0, 1, 0], 1000)), Presented::None);
        assert_eq!(name(&[HANDSHAKE, 9, 9, 0, 1, 1]), Presented::None);
        let broken_off = [&records(&hello(Some("a.example"))[..20], 1000)[..], &[21, 3, 3, 0, 2, 1, 0]].concat();
        assert_eq!(name(&broken_off), Presented::None);
    }
}
