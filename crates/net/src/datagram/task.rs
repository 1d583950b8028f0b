//! The task of one datagram flow: answers to the guest, and the end when it is idle.

use super::socket::{ECHO_LEN, ready, receive};
use super::{Key, Kind};
use crate::config::GUEST;
use crate::stack::{Shared, Stack};
use crate::wire::{self, Unreachable};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::sync::Notify;

/// Datagrams that one turn of the task takes; others have their turn then.
const TURN_MAX: usize = 64;
/// Size of the buffer for one datagram, bytes.
const DATAGRAM_BYTES_MAX: usize = u16::MAX as usize;

/// Carries answers until the flow is idle for long, or evicted.
pub(super) async fn run(shared: &Arc<Shared>, key: Key, socket: &UdpSocket, evict: &Notify) {
    loop {
        let left = idle_left(&mut shared.lock(), key, socket);
        let Some(idle) = left else { return };
        tokio::select! {
            () = evict.notified() => return,
            ready = ready(socket) => {
                if ready.is_ok() {
                    answers(&mut shared.lock(), key, socket);
                }
            }
            () = tokio::time::sleep(idle) => {}
        }
    }
}

/// How long the flow may stay idle yet; `None` if it has ended, and its slot is gone.
fn idle_left(stack: &mut Stack, key: Key, socket: &UdpSocket) -> Option<Duration> {
    let slots = &mut stack.datagrams.slots;
    let slot = slots.get(&key).filter(|slot| std::ptr::eq(&*slot.socket, socket))?;
    let left = slot.idle_limit().checked_sub(slot.last.elapsed()).filter(|left| !left.is_zero());
    if left.is_none() {
        slots.remove(&key);
    }
    left
}

fn answers(stack: &mut Stack, key: Key, socket: &UdpSocket) {
    let mut scratch = std::mem::take(&mut stack.datagrams.scratch);
    scratch.resize(DATAGRAM_BYTES_MAX, 0);
    for _ in 0..TURN_MAX {
        match receive(socket, &mut scratch) {
            Ok(length) => {
                if let Some(slot) = stack.datagrams.slots.get_mut(&key) {
                    (slot.last, slot.answered) = (Instant::now(), true);
                }
                if let Some(packet) = packet(key, &scratch[..length]) {
                    stack.push(&packet);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => tell(stack, key, &error),
        }
    }
    stack.datagrams.scratch = scratch;
}

/// The packet that brings an answer to the guest.
fn packet(key: Key, answer: &[u8]) -> Option<Vec<u8>> {
    match key.kind {
        Kind::Udp { guest_port, port } => wire::udp((key.address, port), (GUEST, guest_port), answer),
        Kind::Echo { ident } => {
            let (&[kind, _, _, _, _, _, high, low], payload) = answer.split_first_chunk::<ECHO_LEN>()?;
            let is_reply = kind == 0;
            let sequence = u16::from_be_bytes([high, low]);
            is_reply.then(|| wire::echo_reply(key.address, GUEST, ident, sequence, payload)).flatten()
        }
    }
}

/// Tells the guest of an error that the host was told of by ICMP.
pub(super) fn tell(stack: &mut Stack, key: Key, error: &io::Error) {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => Unreachable::Port,
        _ => Unreachable::Host,
    };
    if let Kind::Udp { guest_port, port } = key.kind
        && let Some(refused) = wire::udp((GUEST, guest_port), (key.address, port), &[])
    {
        stack.push(&wire::unreachable(key.address, GUEST, why, &refused));
    }
}
