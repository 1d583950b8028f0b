//! HTTP/2 on one byte stream: bodies in, bodies out, both under flow control, with little memory.

mod budget;
mod incoming;
mod outgoing;
mod query;
mod refusal;

pub use budget::Budget;
pub use incoming::{BodyError, Incoming};
pub use outgoing::{CHUNK_LEN_MAX, Chunk, Gone, Outgoing, Responder};
pub use query::Query;
pub use refusal::{Refusal, answer_json, answer_refusal};
