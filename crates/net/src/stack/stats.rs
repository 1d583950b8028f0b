//! Counters.

/// Counters of a network since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Bytes of frames from the guest.
    pub sent_bytes: u64,
    /// Bytes of frames to the guest.
    pub received_bytes: u64,
    /// Flows that were opened: TCP, UDP and echo.
    pub flows_opened: u64,
    /// Flows and DNS questions that the policy refused.
    pub denied: u64,
    /// Packets that were dropped: malformed, of another protocol, without room.
    pub dropped: u64,
    /// TCP flows that are open now or being connected.
    pub tcp_flows: usize,
    /// UDP and echo flows that are open now.
    pub datagram_flows: usize,
}

/// The counters that the stack keeps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stats {
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) flows_opened: u64,
    pub(crate) denied: u64,
    pub(crate) dropped: u64,
}
