//! Starting, steering and ending a network.

use crate::config::NetConfig;
use crate::link;
pub use crate::stack::NetworkStats;
use crate::stack::Shared;
use crate::tcp;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use warren_model::egress::EgressPolicy;
use warren_proto::shim::OpenFlows;

/// One sandbox's network.
#[derive(Debug)]
pub struct Network;

impl Network {
    /// Starts a network on `stream`, the host's end of QEMU's `-netdev stream`. Must be called within a tokio runtime with time and IO enabled.
    ///
    /// The network ends when the handle is dropped, on [`NetworkHandle::shutdown`], or when `stream` ends.
    pub fn start<S>(stream: S, config: NetConfig, policy: EgressPolicy, generation: u64) -> NetworkHandle
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let shared = Shared::new(config, policy, generation);
        link::start(&shared, stream);
        NetworkHandle { shared }
    }
}

/// Steers a network; dropping it ends the network.
pub struct NetworkHandle {
    shared: Arc<Shared>,
}

impl NetworkHandle {
    /// Replaces the policy. After it returns no new flow goes by the old one; established flows are not cut.
    ///
    /// A `generation` below the current one is late and changes nothing.
    pub fn set_policy(&self, policy: EgressPolicy, generation: u64) {
        let mut stack = self.shared.lock();
        if generation >= stack.generation {
            stack.policy = policy;
            stack.generation = generation;
        }
    }

    /// The generation of the policy in force.
    pub fn generation(&self) -> u64 {
        self.shared.lock().generation
    }

    /// Counters as of now.
    pub fn stats(&self) -> NetworkStats {
        self.shared.stats()
    }

    /// The guest's TCP connections as they are now, for [`NetworkHandle::reset`] of whoever goes on from a snapshot that is taken now.
    pub fn open_flows(&self) -> OpenFlows {
        let stack = self.shared.lock();
        OpenFlows { guest_mac: stack.engine.outbox.guest_mac(), tcp: stack.tcp.open() }
    }

    /// Resets connections that the guest has from another network, in the background; to be called when its machine runs. A guest that answers nothing
    /// for some seconds is given up on: then each is reset when the guest sends on it.
    pub fn reset(&self, flows: &OpenFlows) {
        tcp::reset_lost(&self.shared, flows);
    }

    /// Waits until the network has ended by itself, because the stream did.
    pub async fn closed(&self) {
        self.shared.closed().await;
    }

    /// Ends every flow, and waits until nothing of the network runs any more.
    pub async fn shutdown(self) {
        self.shared.close();
        self.shared.ended().await;
    }
}

impl std::fmt::Debug for NetworkHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetworkHandle").finish_non_exhaustive()
    }
}

impl Drop for NetworkHandle {
    fn drop(&mut self) {
        self.shared.close();
    }
}
