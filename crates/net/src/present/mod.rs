//! The host name that a TCP flow presents in its first bytes: TLS server name or HTTP host. Pure.
//!
//! Only the first request of a connection is looked at; a further one on the same connection goes to the same server.

mod http;
mod tls;

use warren_model::egress::HostName;

/// What the first bytes of a flow tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Presented {
    /// This name.
    Name(HostName),
    /// No name will come: another protocol, no name in it, or one that is not a host name.
    None,
    /// More bytes are needed.
    Unclear,
}

/// Reads the name from the first bytes of a flow.
pub(crate) fn name(first: &[u8]) -> Presented {
    match first.first() {
        None => Presented::Unclear,
        Some(&tls::HANDSHAKE) => tls::name(first),
        Some(_) => http::name(first),
    }
}

fn parsed(text: &[u8]) -> Presented {
    let name = std::str::from_utf8(text).ok().and_then(|text| HostName::parse(text).ok());
    name.map_or(Presented::None, Presented::Name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read(mut bytes: Vec<u8>, tls: bool) {
            if tls {
                bytes.splice(..0, [22, 3, 1, 0, 60, 1, 0, 0, 56]);
            }
            name(&bytes);
        }
    }
}
