//! Frames that wait to be written to QEMU.

use crate::config::GATEWAY_MAC;
use crate::limits;
use crate::wire::{ETHER_LEN, ether_header};
use std::sync::Arc;
use tokio::sync::Notify;

/// Length of the size in front of each frame of QEMU's stream, bytes.
const SIZE_LEN: usize = 4;
/// A buffer larger than this is not kept once it is empty, bytes.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Frames in the form that QEMU reads, one behind the other.
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    guest_mac: [u8; 6],
    /// Tasks that have something to say once there is room.
    waiting: Vec<Arc<Notify>>,
    /// Tells the writer that there is something.
    filled: Arc<Notify>,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        let guest_mac = [0xff; 6];
        Self { bytes: Vec::new(), guest_mac, waiting: Vec::new(), filled: Arc::default() }
    }

    /// What the writer waits on.
    pub(crate) fn filled(&self) -> Arc<Notify> {
        Arc::clone(&self.filled)
    }

    /// Where frames go from now on.
    pub(crate) fn set_guest_mac(&mut self, mac: [u8; 6]) {
        self.guest_mac = mac;
    }

    /// Where frames go.
    pub(crate) fn guest_mac(&self) -> [u8; 6] {
        self.guest_mac
    }

    /// Whether one more packet may be pushed.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes.len() < limits::OUTBOX_BYTES_MAX
    }

    /// Wakes `task` once there is room.
    pub(crate) fn wake_when_room(&mut self, task: &Arc<Notify>) {
        if !self.waiting.iter().any(|waiting| Arc::ptr_eq(waiting, task)) {
            self.waiting.push(Arc::clone(task));
        }
    }

    /// Appends an IPv4 packet of `len` bytes, which `fill` writes.
    pub(crate) fn push_ip<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.bytes.extend_from_slice(&((ETHER_LEN + len) as u32).to_be_bytes());
        self.bytes.extend_from_slice(&ether_header(self.guest_mac, GATEWAY_MAC));
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        self.filled.notify_one();
        fill(&mut self.bytes[start..])
    }

    /// Appends a whole frame.
    pub(crate) fn push_frame(&mut self, frame: &[u8]) {
        self.bytes.reserve(SIZE_LEN + frame.len());
        self.bytes.extend_from_slice(&(frame.len() as u32).to_be_bytes());
        self.bytes.extend_from_slice(frame);
        self.filled.notify_one();
    }

    /// Swaps the frames for the empty buffer `spare`, and wakes those who wait for room.
    pub(crate) fn take(&mut self, mut spare: Vec<u8>) -> Vec<u8> {
        spare.clear();
        if self.bytes.len() < KEPT_BYTES_MAX && spare.capacity() > KEPT_BYTES_MAX {
            spare = Vec::new();
        }
        for task in self.waiting.drain(..) {
            task.notify_one();
        }
        std::mem::replace(&mut self.bytes, spare)
    }
}
