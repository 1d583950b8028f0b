//! What the edge asks of control and node. One process in `warren serve`; over HTTP/2 between machines.

mod dial;

pub use dial::{ByteStream, DIAL_WAIT, DialError, DialStream, Door, Doors};
