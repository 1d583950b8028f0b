//! What the guest is told.

use super::query::{Kind, NoQuery, Query, addresses_of};
use super::{resolvers, upstream};
use crate::limits;
use crate::stack::{Shared, Stack};
use hickory_proto::op::ResponseCode;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use warren_model::egress::{EgressPolicy, may_ask};

/// IPv4 and UDP headers, bytes.
const HEADERS_LEN: usize = 28;

/// What a question is answered.
pub(super) enum Answer {
    /// Nothing.
    Nothing,
    /// This.
    Message(Vec<u8>),
    /// What an upstream says: go on with [`from_upstream`].
    Upstream(Box<Asked>),
}

/// A question that only an upstream can answer.
pub(super) struct Asked {
    query: Query,
    _pending: OwnedSemaphorePermit,
}

/// How the answer goes to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// By UDP: it must fit.
    Udp,
    /// By TCP.
    Tcp,
}

/// Answers what can be answered without an upstream.
pub(super) fn at_once(shared: &Shared, stack: &mut Stack, question: &[u8]) -> Answer {
    let query = match Query::parse(question) {
        Ok(query) => query,
        Err(NoQuery::Ignored) => return Answer::Nothing,
        Err(NoQuery::Answered(message)) => return Answer::Message(message),
    };
    if !is_allowed(&stack.policy, &query) {
        stack.stats.denied += 1;
        return Answer::Message(query.empty(ResponseCode::Refused));
    }
    if query.kind() == Kind::Unused {
        return Answer::Message(query.empty(ResponseCode::NoError));
    }
    if let Some(message) = from_services(shared, stack, &query) {
        return Answer::Message(message);
    }
    match shared.dns_pending() {
        Some(pending) => Answer::Upstream(Box::new(Asked { query, _pending: pending })),
        None => Answer::Message(query.empty(ResponseCode::ServFail)),
    }
}

/// A name that is no host name matches no rule.
fn is_allowed(policy: &EgressPolicy, query: &Query) -> bool {
    match &query.name {
        Some(name) => may_ask(policy, name),
        None => match policy {
            EgressPolicy::Allow(rules) => rules.iter().any(|rule| rule.is_everyone()),
            EgressPolicy::Deny(rules) => !rules.iter().any(|rule| rule.is_everyone() && rule.ports.is_none()),
        },
    }
}

fn from_services(shared: &Shared, stack: &mut Stack, query: &Query) -> Option<Vec<u8>> {
    let name = query.name.as_ref()?;
    let addresses = shared.config.service_addresses(name);
    if addresses.is_empty() {
        return None;
    }
    if query.kind() != Kind::Addresses {
        return Some(query.empty(ResponseCode::NoError));
    }
    for &address in &addresses {
        stack.names.learn(name, address, Duration::ZERO, Instant::now());
    }
    Some(query.addresses(&addresses))
}

/// Asks the upstreams.
pub(super) async fn from_upstream(shared: &Shared, asked: &Asked, transport: Transport) -> Vec<u8> {
    let query = &asked.query;
    let upstreams = shared.config.upstreams.clone().unwrap_or_else(resolvers::of_host);
    let answered = timeout(limits::DNS_WAIT, upstream::ask(&upstreams, query)).await.ok().flatten();
    let Some(answered) = answered else { return query.empty(ResponseCode::ServFail) };

    let mut stack = shared.lock();
    // The policy may have changed meanwhile, and what it refuses now the guest must not learn.
    if !is_allowed(&stack.policy, query) {
        stack.stats.denied += 1;
        return query.empty(ResponseCode::Refused);
    }
    if let Some(name) = &query.name {
        for (address, ttl) in addresses_of(&answered.message) {
            stack.names.learn(name, address, Duration::from_secs(ttl.into()), Instant::now());
        }
    }
    let room = query.payload_max().min(shared.config.mtu() - HEADERS_LEN);
    if transport == Transport::Udp && answered.bytes.len() > room {
        return query.truncated();
    }
    query.relayed(answered.bytes)
}
