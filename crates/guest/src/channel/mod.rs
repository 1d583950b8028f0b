//! The guest channel: a virtio-serial port, made a clean byte stream by a nonce.

mod nonce;
mod port;

pub use nonce::{Agreed, agree};
pub use port::Port;
