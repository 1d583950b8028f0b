//! Ethernet frames and ARP.

use std::net::Ipv4Addr;

/// Length of an Ethernet header, bytes.
pub(crate) const ETHER_LEN: usize = 14;
/// Length of an ARP packet for IPv4 over Ethernet, bytes.
const ARP_LEN: usize = 28;

const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_ARP: [u8; 2] = [0x08, 0x06];
/// Hardware Ethernet, protocol IPv4, their address lengths.
const ARP_ETHER_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];
const ARP_REQUEST: [u8; 2] = [0, 1];
const ARP_REPLY: [u8; 2] = [0, 2];

/// A hardware address.
pub(crate) type Mac = [u8; 6];

/// A frame from the guest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// It asks who has an address.
    WhoHas { sender: Mac, sender_ip: Ipv4Addr, target_ip: Ipv4Addr },
    /// It carries an IPv4 packet.
    Ipv4 { sender: Mac, packet: &'a [u8] },
    /// Neither; it is dropped.
    Other,
}

impl<'a> Frame<'a> {
    /// Reads a frame; a malformed one is [`Frame::Other`].
    pub(crate) fn parse(frame: &'a [u8]) -> Self {
        let Some((header, payload)) = frame.split_first_chunk::<ETHER_LEN>() else { return Frame::Other };
        let [_, _, _, _, _, _, m0, m1, m2, m3, m4, m5, t0, t1] = *header;
        let sender = [m0, m1, m2, m3, m4, m5];
        match [t0, t1] {
            TYPE_IPV4 => Frame::Ipv4 { sender, packet: payload },
            TYPE_ARP => parse_arp(payload).unwrap_or(Frame::Other),
            _ => Frame::Other,
        }
    }
}

fn parse_arp(payload: &[u8]) -> Option<Frame<'static>> {
    let arp = payload.first_chunk::<ARP_LEN>()?;
    if arp[0..6] != ARP_ETHER_IPV4 || arp[6..8] != ARP_REQUEST {
        return None;
    }
    let ip = |at: usize| Ipv4Addr::new(arp[at], arp[at + 1], arp[at + 2], arp[at + 3]);
    Some(Frame::WhoHas { sender: *arp[8..].first_chunk()?, sender_ip: ip(14), target_ip: ip(24) })
}

/// The header of a frame that carries an IPv4 packet.
pub(crate) fn ether_header(to: Mac, from: Mac) -> [u8; ETHER_LEN] {
    header(to, from, TYPE_IPV4)
}

fn header(to: Mac, from: Mac, kind: [u8; 2]) -> [u8; ETHER_LEN] {
    let mut bytes = [0; ETHER_LEN];
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&from);
    bytes[12..].copy_from_slice(&kind);
    bytes
}

/// The frame that tells `asker` that `ip` is at `mac`.
pub(crate) fn arp_reply(mac: Mac, ip: Ipv4Addr, asker: Mac, asker_ip: Ipv4Addr) -> [u8; ETHER_LEN + ARP_LEN] {
    let mut frame = [0; ETHER_LEN + ARP_LEN];
    frame[..ETHER_LEN].copy_from_slice(&header(asker, mac, TYPE_ARP));
    let arp = &mut frame[ETHER_LEN..];
    arp[0..6].copy_from_slice(&ARP_ETHER_IPV4);
    arp[6..8].copy_from_slice(&ARP_REPLY);
    arp[8..14].copy_from_slice(&mac);
    arp[14..18].copy_from_slice(&ip.octets());
    arp[18..24].copy_from_slice(&asker);
    arp[24..28].copy_from_slice(&asker_ip.octets());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_has_and_its_answer() {
        let (ip, asker_ip) = (Ipv4Addr::new(10, 0, 2, 2), Ipv4Addr::new(10, 0, 2, 15));
        let mut request = arp_reply([9; 6], asker_ip, [0xff; 6], ip);
        request[ETHER_LEN + 7] = 1;
        let parsed = Frame::parse(&request);
        assert_eq!(parsed, Frame::WhoHas { sender: [9; 6], sender_ip: asker_ip, target_ip: ip });
        let answer = arp_reply([1; 6], ip, [9; 6], asker_ip);
        assert_eq!(answer[..6], [9; 6]);
        assert_eq!(answer[ETHER_LEN + 8..ETHER_LEN + 18], [1, 1, 1, 1, 1, 1, 10, 0, 2, 2]);
        assert_eq!(Frame::parse(&answer), Frame::Other);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_dropped(bytes: Vec<u8>) {
            Frame::parse(&bytes);
        }
    }
}
