//! The verdict on one flow.

use super::{ClosedRanges, EgressPolicy, HostName, NAMED_PORTS, Rule, Target};
use std::net::Ipv4Addr;

/// What a flow is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A TCP connection.
    Tcp,
    /// UDP datagrams between two ports.
    Udp,
    /// ICMP echo.
    Icmp,
}

/// A flow that the guest wants to open.
#[derive(Debug, Clone, Copy)]
pub struct Flow<'a> {
    /// Where to.
    pub address: Ipv4Addr,
    /// Port at the destination; ignored for ICMP.
    pub port: u16,
    /// Over what.
    pub protocol: Protocol,
    /// Names for which this guest was given `address` as an answer.
    pub names: &'a [HostName],
}

/// What becomes of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Open it.
    Allow,
    /// Open it, but pass nothing on before its first bytes have presented a name for which [`may_present`] holds.
    Inspect,
    /// Refuse it.
    Deny(Denial),
}

/// Why a flow is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// Closed by default, and not opened by a rule.
    Closed,
    /// The allow list has no rule for it.
    NotAllowed,
    /// A rule of the deny list matches.
    Denied,
}

impl Flow<'_> {
    fn rule_port(&self) -> Option<u16> {
        match self.protocol {
            Protocol::Tcp | Protocol::Udp => Some(self.port),
            Protocol::Icmp => None,
        }
    }

    /// Whether the first bytes of the flow tell a name.
    fn presents_name(&self) -> bool {
        self.protocol == Protocol::Tcp && NAMED_PORTS.contains(&self.port)
    }

    fn matches_by_name(&self, rule: &Rule) -> bool {
        rule.covers(self.rule_port()) && self.names.iter().any(|name| rule.matches_name(name))
    }

    fn matches_by_address(&self, rule: &Rule) -> bool {
        rule.covers(self.rule_port()) && rule.matches_address(self.address)
    }
}

/// Decides on a flow.
///
/// A name never opens a closed address: an answer that maps a name to one (DNS rebinding) changes nothing.
pub fn decide(policy: &EgressPolicy, closed: &ClosedRanges, flow: &Flow<'_>) -> Verdict {
    if closed.never_opens(flow.address) {
        return Verdict::Deny(Denial::Closed);
    }
    if closed.contains(flow.address) {
        return decide_closed(policy, closed, flow);
    }
    match policy {
        EgressPolicy::Allow(rules) => decide_allow(rules, flow),
        EgressPolicy::Deny(rules) => decide_deny(rules, flow),
    }
}

fn decide_closed(policy: &EgressPolicy, closed: &ClosedRanges, flow: &Flow<'_>) -> Verdict {
    let opens = |rule: &Rule| match &rule.target {
        Target::Net(net) => {
            flow.matches_by_address(rule) && closed.around(flow.address).all(|range| net.is_within(range))
        }
        Target::Any | Target::Host(_) | Target::Below(_) => false,
    };
    match policy {
        EgressPolicy::Allow(rules) if rules.iter().any(opens) => Verdict::Allow,
        EgressPolicy::Allow(_) | EgressPolicy::Deny(_) => Verdict::Deny(Denial::Closed),
    }
}

fn decide_allow(rules: &[Rule], flow: &Flow<'_>) -> Verdict {
    if rules.iter().any(|rule| flow.matches_by_address(rule)) {
        return Verdict::Allow;
    }
    if !rules.iter().any(|rule| flow.matches_by_name(rule)) {
        return Verdict::Deny(Denial::NotAllowed);
    }
    if flow.presents_name() { Verdict::Inspect } else { Verdict::Allow }
}

fn decide_deny(rules: &[Rule], flow: &Flow<'_>) -> Verdict {
    if rules.iter().any(|rule| flow.matches_by_address(rule)) {
        return Verdict::Deny(Denial::Denied);
    }
    // Many names share an address. Where the flow itself tells which one it is for, that decides; elsewhere one denied name suffices.
    if flow.presents_name() {
        let by_name = rules.iter().any(|rule| rule.is_by_name() && rule.covers(flow.rule_port()));
        return if by_name { Verdict::Inspect } else { Verdict::Allow };
    }
    let denied = rules.iter().any(|rule| flow.matches_by_name(rule));
    if denied { Verdict::Deny(Denial::Denied) } else { Verdict::Allow }
}

/// Whether the guest may ask DNS for `name`. A denied name with ports stays askable: its other ports are not denied.
pub fn may_ask(policy: &EgressPolicy, name: &HostName) -> bool {
    let about = |rule: &Rule| rule.is_everyone() || rule.matches_name(name);
    match policy {
        EgressPolicy::Allow(rules) => rules.iter().any(about),
        EgressPolicy::Deny(rules) => !rules.iter().any(|rule| rule.ports.is_none() && about(rule)),
    }
}

/// Whether a flow to `port` under [`Verdict::Inspect`] may go on after it presented `name`.
///
/// `None` is a flow that presents no name: an allow list refuses it, since nothing shows that it is for an allowed host.
pub fn may_present(policy: &EgressPolicy, port: u16, name: Option<&HostName>) -> bool {
    let about = |rule: &Rule| rule.covers(Some(port)) && name.is_some_and(|name| rule.matches_name(name));
    match policy {
        EgressPolicy::Allow(rules) => {
            rules.iter().any(|rule| about(rule) || (rule.is_everyone() && rule.covers(Some(port))))
        }
        EgressPolicy::Deny(rules) => !rules.iter().any(about),
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
