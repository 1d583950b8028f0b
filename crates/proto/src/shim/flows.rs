use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// The TCP connections that a guest has open to the outside at one moment. Who goes on from a snapshot of it resets them: their other ends stay with
/// the machine that the snapshot was taken of, or are gone with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFlows {
    /// The address that the guest's interface sends from.
    pub guest_mac: [u8; 6],
    /// At most [`super::limits::OPEN_FLOWS_MAX`].
    pub tcp: Vec<OpenTcp>,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTcp {
    /// The guest's port.
    pub guest_port: u16,
    /// Where it leads.
    pub address: Ipv4Addr,
    /// The port there.
    pub port: u16,
    /// Number of the next byte that the guest sends, as far as it was heard.
    pub sends: u32,
    /// Number of the next byte that the guest expects, as far as it was heard.
    pub expects: u32,
}
