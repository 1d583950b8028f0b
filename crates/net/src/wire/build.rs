//! IPv4 packets for the guest that no smoltcp socket makes.

use super::TcpSegment;
use smoltcp::wire::{
    Icmpv4Message, Icmpv4Packet, IpAddress, IpProtocol, Ipv4Packet, TcpPacket, TcpSeqNumber, UdpPacket,
};
use std::net::Ipv4Addr;

const IP_LEN: usize = 20;
const UDP_LEN: usize = 8;
const TCP_LEN: usize = 20;
const ICMP_LEN: usize = 8;
/// Hop limit of all packets.
const HOPS: u8 = 64;
/// Bytes of a refused packet that an ICMP error repeats: its header with options, and 8 bytes.
const REPEATED_MAX: usize = 68;

/// Why a packet is answered by an ICMP error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// There is no way to it.
    Host,
    /// Nobody listens on the port.
    Port,
    /// The policy refuses it.
    Prohibited,
}

impl Unreachable {
    fn code(self) -> u8 {
        match self {
            Unreachable::Host => 1,
            Unreachable::Port => 3,
            Unreachable::Prohibited => 13,
        }
    }
}

/// An IPv4 header, and room for `payload_len` bytes behind it.
fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: IpProtocol, payload_len: usize) -> Vec<u8> {
    let mut bytes = vec![0; IP_LEN + payload_len];
    let mut ip = Ipv4Packet::new_unchecked(&mut bytes[..]);
    ip.set_version(4);
    ip.set_header_len(IP_LEN as u8);
    ip.set_total_len((IP_LEN + payload_len) as u16);
    ip.set_dont_frag(true);
    ip.set_hop_limit(HOPS);
    ip.set_next_header(protocol);
    ip.set_src_addr(from);
    ip.set_dst_addr(to);
    ip.fill_checksum();
    bytes
}

/// A UDP datagram; `None` if it would not fit one IPv4 packet.
pub(crate) fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Option<Vec<u8>> {
    let length = UDP_LEN + payload.len();
    u16::try_from(IP_LEN + length).ok()?;
    let mut bytes = ipv4(from.0, to.0, IpProtocol::Udp, length);
    let mut udp = UdpPacket::new_unchecked(&mut bytes[IP_LEN..]);
    udp.set_src_port(from.1);
    udp.set_dst_port(to.1);
    udp.set_len(length as u16);
    udp.payload_mut().copy_from_slice(payload);
    udp.fill_checksum(&IpAddress::Ipv4(from.0), &IpAddress::Ipv4(to.0));
    Some(bytes)
}

/// The answer to an echo request.
pub(crate) fn echo_reply(from: Ipv4Addr, to: Ipv4Addr, ident: u16, sequence: u16, payload: &[u8]) -> Option<Vec<u8>> {
    let length = ICMP_LEN + payload.len();
    u16::try_from(IP_LEN + length).ok()?;
    let mut bytes = ipv4(from, to, IpProtocol::Icmp, length);
    let mut icmp = Icmpv4Packet::new_unchecked(&mut bytes[IP_LEN..]);
    icmp.set_msg_type(Icmpv4Message::EchoReply);
    icmp.set_msg_code(0);
    icmp.set_echo_ident(ident);
    icmp.set_echo_seq_no(sequence);
    icmp.data_mut().copy_from_slice(payload);
    icmp.fill_checksum();
    Some(bytes)
}

/// The ICMP error that tells the sender of `refused`, an IPv4 packet, why it went nowhere.
pub(crate) fn unreachable(from: Ipv4Addr, to: Ipv4Addr, why: Unreachable, refused: &[u8]) -> Vec<u8> {
    let repeated = &refused[..refused.len().min(REPEATED_MAX)];
    let mut bytes = ipv4(from, to, IpProtocol::Icmp, ICMP_LEN + repeated.len());
    bytes[IP_LEN + ICMP_LEN..].copy_from_slice(repeated);
    let mut icmp = Icmpv4Packet::new_unchecked(&mut bytes[IP_LEN..]);
    icmp.set_msg_type(Icmpv4Message::DstUnreachable);
    icmp.set_msg_code(why.code());
    icmp.fill_checksum();
    bytes
}

/// A TCP segment without payload, but for its checksum; `fill` sets what is its own.
fn tcp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), fill: impl FnOnce(&mut TcpPacket<&mut [u8]>)) -> Vec<u8> {
    let mut bytes = ipv4(from.0, to.0, IpProtocol::Tcp, TCP_LEN);
    let mut tcp = TcpPacket::new_unchecked(&mut bytes[IP_LEN..]);
    tcp.set_src_port(from.1);
    tcp.set_dst_port(to.1);
    tcp.clear_flags();
    tcp.set_header_len(TCP_LEN as u8);
    fill(&mut tcp);
    tcp.fill_checksum(&IpAddress::Ipv4(from.0), &IpAddress::Ipv4(to.0));
    bytes
}

/// The segment with which one end of an idle connection asks whether the other is there: it repeats the number of a byte that was taken already.
/// The other end answers with where it stands (RFC 9293, 3.10.7.4). `expects` and `sends` are of the end that is asked.
pub(crate) fn keepalive(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), expects: u32, sends: u32) -> Vec<u8> {
    tcp(from, to, |tcp| {
        tcp.set_ack(true);
        tcp.set_seq_number(TcpSeqNumber(expects.wrapping_sub(1) as i32));
        tcp.set_ack_number(TcpSeqNumber(sends as i32));
        tcp.set_window_len(u16::MAX);
    })
}

/// The reset that answers a segment of no connection (RFC 9293, 3.10.7.1).
pub(crate) fn reset(segment: &TcpSegment) -> Vec<u8> {
    tcp((segment.to, segment.to_port), (segment.from, segment.from_port), |tcp| {
        tcp.set_rst(true);
        if segment.ack {
            tcp.set_seq_number(TcpSeqNumber(segment.acknowledges as i32));
        } else {
            tcp.set_ack(true);
            tcp.set_ack_number(TcpSeqNumber(segment.sequence.wrapping_add(segment.length) as i32));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::Packet;
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(1, 2, 3, 4);
    const B: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);

    #[test]
    fn a_datagram_reads_as_what_was_built() {
        let bytes = udp((A, 53), (B, 4000), b"hello").unwrap();
        let read = Packet::parse(&bytes);
        assert_eq!(read, Packet::Udp { from: A, from_port: 53, to: B, to_port: 4000, payload: b"hello" });
        let ip = Ipv4Packet::new_checked(&bytes[..]).unwrap();
        assert!(ip.verify_checksum());
        assert!(UdpPacket::new_checked(ip.payload()).unwrap().verify_checksum(&A.into(), &B.into()));
        assert!(udp((A, 53), (B, 4000), &vec![0; 65507]).is_some());
        assert!(udp((A, 53), (B, 4000), &vec![0; 65508]).is_none());
    }

    #[test]
    fn a_reset_acknowledges_a_syn() {
        let syn = TcpSegment {
            from: B,
            from_port: 4000,
            to: A,
            to_port: 80,
            syn: true,
            ack: false,
            rst: false,
            sequence: u32::MAX,
            acknowledges: 0,
            length: 1,
        };
        let bytes = reset(&syn);
        let Packet::Tcp(read) = Packet::parse(&bytes) else { panic!("no segment") };
        assert!(read.rst && read.ack && !read.syn);
        assert_eq!((read.from, read.from_port, read.to, read.to_port, read.acknowledges), (A, 80, B, 4000, 0));
        let ip = Ipv4Packet::new_checked(&bytes[..]).unwrap();
        assert!(TcpPacket::new_checked(ip.payload()).unwrap().verify_checksum(&A.into(), &B.into()));
    }

    #[test]
    fn an_error_repeats_the_head_of_the_refused_packet() {
        let refused = udp((B, 4000), (A, 53), &[7; 500]).unwrap();
        let bytes = unreachable(A, B, Unreachable::Prohibited, &refused);
        let ip = Ipv4Packet::new_checked(&bytes[..]).unwrap();
        let icmp = Icmpv4Packet::new_checked(ip.payload()).unwrap();
        assert!(icmp.verify_checksum());
        assert_eq!((icmp.msg_type(), icmp.msg_code()), (Icmpv4Message::DstUnreachable, 13));
        assert_eq!(&ip.payload()[ICMP_LEN..], &refused[..REPEATED_MAX]);
    }
}
