//! What becomes of a frame from the guest.

use super::{Shared, Stack};
use crate::config::{GATEWAY, GATEWAY_MAC, GUEST};
use crate::wire::{Frame, Packet, arp_reply};
use crate::{datagram, dns, tcp};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Handles one frame. `stack` is the locked stack of `shared`.
pub(crate) fn frame(shared: &Arc<Shared>, stack: &mut Stack, bytes: &[u8]) {
    stack.stats.sent_bytes += bytes.len() as u64;
    match Frame::parse(bytes) {
        Frame::WhoHas { sender, sender_ip, target_ip } => {
            // Whatever is asked for, save the guest's own address (it probes whether that is taken), lies behind the gateway.
            if target_ip != GUEST && sender_ip != target_ip {
                stack.engine.outbox.set_guest_mac(sender);
                stack.engine.outbox.push_frame(&arp_reply(GATEWAY_MAC, target_ip, sender, sender_ip));
            }
        }
        Frame::Ipv4 { sender, packet } => {
            stack.engine.outbox.set_guest_mac(sender);
            ipv4(shared, stack, packet);
        }
        Frame::Other => stack.stats.dropped += 1,
    }
}

fn ipv4(shared: &Arc<Shared>, stack: &mut Stack, bytes: &[u8]) {
    match Packet::parse(bytes) {
        Packet::Tcp(segment) if segment.from == GUEST => tcp::segment(shared, stack, &segment, bytes),
        Packet::Udp { from: GUEST, from_port, to: GATEWAY, to_port: dns::PORT, payload } => {
            dns::datagram(shared, stack, from_port, payload);
        }
        Packet::Udp { from: GUEST, from_port, to, to_port, payload } => {
            let key = datagram::Key::udp(from_port, to, to_port);
            datagram::send(shared, stack, key, payload, bytes);
        }
        Packet::Echo { from: GUEST, to, ident, sequence, payload } => {
            echo(shared, stack, to, ident, (sequence, payload), bytes);
        }
        Packet::Tcp(_) | Packet::Udp { .. } | Packet::Echo { .. } | Packet::Other => stack.stats.dropped += 1,
    }
}

fn echo(shared: &Arc<Shared>, stack: &mut Stack, to: Ipv4Addr, ident: u16, probe: (u16, &[u8]), bytes: &[u8]) {
    let (sequence, payload) = probe;
    if to != GATEWAY {
        datagram::probe(shared, stack, datagram::Key::echo(ident, to), (sequence, payload), bytes);
    } else if let Some(reply) = crate::wire::echo_reply(to, GUEST, ident, sequence, payload) {
        stack.push(&reply);
    }
}
