//! Connections that the guest has from another network: open when the snapshot was taken that it goes on from, and carried by nobody here.
//!
//! A guest that sends on one gets a reset, as on any unknown one. One that only waits is made to send, by a keepalive: it answers with where it stands,
//! and to that a reset has the right number. A reset sent at once would need to know that number, and one with a wrong number is dropped:
//! by the guest's kernel, or already by its address translation where the connection is a container's.

use super::{Standing, TcpKey};
use crate::config::GUEST;
use crate::limits;
use crate::stack::{Shared, Stack};
use crate::wire::keepalive;
use std::sync::Arc;
use warren_proto::shim::limits::OPEN_FLOWS_MAX;
use warren_proto::shim::{OpenFlows, OpenTcp};

/// Resets connections in the background: asks for each until the guest says that it has no such connection.
pub(crate) fn reset_lost(shared: &Arc<Shared>, flows: &OpenFlows) {
    if flows.tcp.is_empty() {
        return;
    }
    let mut stack = shared.lock();
    // The guest's kernel takes TCP only from frames that are for it alone.
    stack.engine.outbox.set_guest_mac(flows.guest_mac);
    let lost = flows.tcp.iter().take(OPEN_FLOWS_MAX).map(|&OpenTcp { guest_port, address, port, sends, expects }| {
        (TcpKey { guest_port, address, port }, Standing { sends, expects })
    });
    stack.tcp.lost.extend(lost);
    drop(stack);
    let task = Arc::clone(shared);
    shared.spawn(async move { ask(&task).await });
}

async fn ask(shared: &Shared) {
    let mut wait = limits::LOST_WAIT_FIRST;
    for _ in 0..limits::LOST_ASKED_MAX {
        if !ask_once(&mut shared.lock()) {
            return;
        }
        tokio::time::sleep(wait).await;
        wait *= 2;
    }
    let given_up = std::mem::take(&mut shared.lock().tcp.lost).len();
    if given_up > 0 {
        tracing::warn!(given_up, "the guest does not say how connections from before its snapshot stand");
    }
}

/// Asks about each; false if there is none left. What finds no room is asked for the next time.
fn ask_once(stack: &mut Stack) -> bool {
    let asked: Vec<Vec<u8>> = (stack.tcp.lost.iter())
        .map(|(key, standing)| {
            keepalive((key.address, key.port), (GUEST, key.guest_port), standing.expects, standing.sends)
        })
        .collect();
    for packet in &asked {
        stack.push(packet);
    }
    !asked.is_empty()
}
