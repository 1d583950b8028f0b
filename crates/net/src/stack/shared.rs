//! The handle on the stack that every task has.

use super::{NetworkStats, Stack};
use crate::config::NetConfig;
use crate::limits;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use warren_model::egress::EgressPolicy;

/// The stack, its config, and its tasks.
pub(crate) struct Shared {
    stack: Mutex<Stack>,
    /// What the caller decided.
    pub(crate) config: NetConfig,
    dns_pending: Arc<Semaphore>,
    dns_sessions: Arc<Semaphore>,
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl Shared {
    pub(crate) fn new(config: NetConfig, policy: EgressPolicy, generation: u64) -> Arc<Self> {
        let stack = Mutex::new(Stack::new(&config, policy, generation, random()));
        Arc::new(Self {
            stack,
            config,
            dns_pending: Arc::new(Semaphore::new(limits::DNS_PENDING_MAX)),
            dns_sessions: Arc::new(Semaphore::new(limits::DNS_SESSIONS_MAX)),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// The stack. Never held across a wait.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Stack> {
        // The tables stay consistent enough to serve other flows after a panic amid one packet.
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leave to have one more question wait for an upstream.
    pub(crate) fn dns_pending(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.dns_pending).try_acquire_owned().ok()
    }

    /// Leave for one more DNS session over TCP.
    pub(crate) fn dns_session(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.dns_sessions).try_acquire_owned().ok()
    }

    /// Runs a task until it ends or the network does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        self.tasks.spawn(async move { _ = closing.run_until_cancelled_owned(task).await });
    }

    /// Ends all tasks.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
    }

    /// Waits until [`Shared::close`] was called.
    pub(crate) async fn closed(&self) {
        self.closing.cancelled().await;
    }

    /// Waits until all tasks have ended after [`Shared::close`].
    pub(crate) async fn ended(&self) {
        self.tasks.wait().await;
    }

    /// Counters as of now.
    pub(crate) fn stats(&self) -> NetworkStats {
        let stack = self.lock();
        let stats = stack.stats;
        NetworkStats {
            sent_bytes: stats.sent_bytes,
            received_bytes: stats.received_bytes,
            flows_opened: stats.flows_opened,
            denied: stats.denied,
            dropped: stats.dropped,
            tcp_flows: stack.tcp.len(),
            datagram_flows: stack.datagrams.len(),
        }
    }
}

/// An unpredictable number: the hasher's keys come from the system's entropy.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0u8)
}
