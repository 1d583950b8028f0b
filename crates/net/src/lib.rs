//! One sandbox's network in user space: frames in, sockets out; NAT, DNS, policy.
//!
//! ```text
//!            frames                 packets                      bytes
//!  QEMU ◄── unix socket ──► link ◄───────────► stack (locked) ◄───────────► one task per flow ◄──► host socket
//!                                                 │ policy, names                dns ◄──► resolvers of the host
//! ```
//!
//! - `wire` knows the layout of packets, and nothing else. It is pure.
//! - `link` moves frames between the socket and the stack: one task each way.
//! - `stack` is the state that all tasks share, under one lock that is never held across a wait: flow tables, names, the policy.
//!   It answers ARP, says what becomes of each packet, and starts a task for each new flow.
//! - `tcp` ends TCP connections of the guest (each with a smoltcp socket of its own) and carries their bytes to a socket of the host;
//!   `datagram` does it for UDP and ICMP echo.
//! - `dns` answers the guest's questions; `present` reads the host name that a flow presents in its first bytes.
//!
//! Nothing runs on a schedule: with no flow open, no task wakes.
#![forbid(unsafe_code)]

mod config;
mod datagram;
mod dns;
pub mod limits;
mod link;
mod names;
mod network;
mod present;
mod stack;
mod tcp;
mod wire;

pub use config::{GATEWAY, GATEWAY_MAC, GUEST, GUEST_PREFIX_LEN, HostService, NetConfig};
pub use network::{Network, NetworkHandle, NetworkStats};
