//! The guest's DNS server: asks the host's resolvers what the policy lets the guest ask, and remembers what it was told.

mod answer;
mod query;
mod resolvers;
mod session;
mod upstream;

pub(crate) use session::session;

use crate::config::{GATEWAY, GUEST};
use crate::stack::{Shared, Stack};
use crate::wire;
use answer::{Answer, Transport};
use std::sync::Arc;

/// Port of DNS, at the gateway.
pub(crate) const PORT: u16 = 53;

/// Handles a question that came by UDP from the guest's port `from`.
pub(crate) fn datagram(shared: &Arc<Shared>, stack: &mut Stack, from: u16, question: &[u8]) {
    match answer::at_once(shared, stack, question) {
        Answer::Nothing => stack.stats.dropped += 1,
        Answer::Message(message) => push(stack, from, &message),
        Answer::Upstream(asked) => {
            let task = Arc::clone(shared);
            shared.spawn(async move {
                let message = answer::from_upstream(&task, &asked, Transport::Udp).await;
                push(&mut task.lock(), from, &message);
            });
        }
    }
}

fn push(stack: &mut Stack, to: u16, message: &[u8]) {
    if let Some(packet) = wire::udp((GATEWAY, PORT), (GUEST, to), message) {
        stack.push(&packet);
    }
}
