//! What outsiders reach: exposed ports, SSH, tunnels ([ADR 10](../../../docs/adr/0010-ways-in.md)).
//!
//! The crate has the listeners and carries bytes; whether something may be reached is control's to say, and the way to it the node's:
//! both are asked by the traits of [`warren_proto::edge`].
#![forbid(unsafe_code)]
