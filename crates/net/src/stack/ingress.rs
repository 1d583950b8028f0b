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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HostService, NetConfig};
    use proptest::prelude::*;
    use tokio::net::{TcpListener, TcpStream};
    use warren_model::egress::EgressPolicy;

    const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 100);

    /// A frame of the guest with an IPv4 packet for [`SERVICE`] that has `payload`.
    fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let length = (20 + payload.len()) as u16;
        let mut frame = vec![0xff; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend(GUEST.octets());
        frame.extend(SERVICE.octets());
        frame.extend(payload);
        frame
    }

    /// A TCP segment from port 1000 to port 7.
    fn segment(flags: u8, numbers: (u32, u32), window: u16, tail: &[u8]) -> Vec<u8> {
        let mut payload = vec![0x03, 0xe8, 0, 7];
        payload.extend(numbers.0.to_be_bytes());
        payload.extend(numbers.1.to_be_bytes());
        payload.extend([0x50, flags]);
        payload.extend(window.to_be_bytes());
        payload.extend([0; 4]);
        payload.extend(tail);
        packet(6, &payload)
    }

    /// What the guest sends: anything, but often a segment near the numbers of the open connection, `0` being the next of each.
    #[derive(Debug, Clone)]
    enum Sent {
        Segment { flags: u8, numbers: (u32, u32), window: u16, tail: Vec<u8> },
        Frame(Vec<u8>),
    }

    fn any_sent() -> impl Strategy<Value = Sent> {
        let number = prop_oneof![1 => any::<u32>(), 4 => 0..300u32, 1 => (u32::MAX - 300)..];
        let tail = proptest::collection::vec(any::<u8>(), 0..100);
        let segment = (any::<u8>(), number.clone(), number, any::<u16>(), tail).prop_map(
            |(flags, sequence, acknowledges, window, tail)| {
                // Resets and SYNs end the connection, and with it most of what there is to see.
                let flags = if window % 8 == 0 { flags } else { flags & !6 };
                Sent::Segment { flags, numbers: (sequence, acknowledges), window, tail }
            },
        );
        let packet = (any::<u8>(), any::<Vec<u8>>()).prop_map(|(protocol, payload)| packet(protocol, &payload));
        prop_oneof![6 => segment, 1 => packet.prop_map(Sent::Frame), 1 => any::<Vec<u8>>().prop_map(Sent::Frame)]
    }

    /// Opens the connection as a guest does; returns the numbers that its next segment has, and the server's end.
    async fn connect(shared: &Arc<Shared>, listener: &TcpListener) -> ((u32, u32), TcpStream) {
        frame(shared, &mut shared.lock(), &segment(2, (100, 0), 1000, &[]));
        let (server, _) = listener.accept().await.unwrap();
        let filled = shared.lock().engine.outbox.filled();
        filled.notified().await;
        let frames = shared.lock().engine.outbox.take(Vec::new());
        let Packet::Tcp(answer) = Packet::parse(&frames[4 + 14..]) else { panic!("no segment") };
        assert!(answer.syn && answer.ack && answer.acknowledges == 101);
        let next = (101, answer.sequence.wrapping_add(1));
        frame(shared, &mut shared.lock(), &segment(16, next, 1000, &[]));
        (next, server)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_the_guest_sends_is_survived(sent in proptest::collection::vec(any_sent(), 0..60)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let target = listener.local_addr().unwrap();
                let service = HostService { names: Vec::new(), address: SERVICE, port: 7, target };
                let config = NetConfig { services: vec![service], ..NetConfig::default() };
                let shared = Shared::new(config, EgressPolicy::Allow(vec!["10.0.2.100:7".parse().unwrap()]), 0);
                let (next, _server) = connect(&shared, &listener).await;
                for sent in sent {
                    let bytes = match sent {
                        Sent::Segment { flags, numbers, window, tail } => {
                            let numbers = (next.0.wrapping_add(numbers.0), next.1.wrapping_add(numbers.1));
                            segment(flags, numbers, window, &tail)
                        }
                        Sent::Frame(bytes) => bytes,
                    };
                    frame(&shared, &mut shared.lock(), &bytes);
                    tokio::task::yield_now().await;
                }
                shared.close();
                shared.ended().await;
                prop_assert_eq!(shared.stats().tcp_flows, 0);
                Ok(())
            })?;
        }
    }
}
