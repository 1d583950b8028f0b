//! Layout of Ethernet frames, ARP and IPv4 packets. Pure.

mod build;
mod ether;
mod packet;

pub(crate) use build::{Unreachable, echo_reply, keepalive, reset, udp, unreachable};
pub(crate) use ether::{ETHER_LEN, Frame, arp_reply, ether_header};
pub(crate) use packet::{Packet, TcpSegment};
