//! What smoltcp sees of the link: one packet in, the outbox out.

use super::outbox::Outbox;
use smoltcp::phy::{self, Checksum, ChecksumCapabilities, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

pub(super) struct Device<'a> {
    packet: Option<&'a [u8]>,
    outbox: &'a mut Outbox,
    mtu: usize,
}

impl<'a> Device<'a> {
    pub(super) fn new(packet: Option<&'a [u8]>, outbox: &'a mut Outbox, mtu: usize) -> Self {
        Self { packet, outbox, mtu }
    }
}

impl phy::Device for Device<'_> {
    type RxToken<'b>
        = RxToken<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = TxToken<'b>
    where
        Self: 'b;

    fn receive(&mut self, _now: Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        // A reply to a packet may overrun the outbox's limit by that one reply.
        self.packet.take().map(|packet| (RxToken(packet), TxToken(self.outbox)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<TxToken<'_>> {
        self.outbox.has_room().then_some(TxToken(self.outbox))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        // Packets come over memory: sums are made, since the guest checks them, and not checked.
        let mut checksum = ChecksumCapabilities::ignored();
        checksum.ipv4 = Checksum::Tx;
        checksum.tcp = Checksum::Tx;
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities.checksum = checksum;
        capabilities
    }
}

pub(super) struct RxToken<'a>(&'a [u8]);

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

pub(super) struct TxToken<'a>(&'a mut Outbox);

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        self.0.push_ip(len, f)
    }
}
