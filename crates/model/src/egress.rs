//! What a sandbox may reach: the rules of a policy, and the verdict on one flow.
//!
//! A policy is one list, either of what is allowed or of what is denied. Beneath it lies a floor that no list can remove by accident:
//! [`ClosedRanges`] (loopback, link-local and cloud metadata, multicast, the gateway, and what the node adds).

mod closed;
mod decide;
mod name;
mod rule;

pub use closed::ClosedRanges;
pub use decide::{Denial, Flow, Protocol, Verdict, decide, may_ask, may_present};
pub use name::HostName;
pub use rule::{BadRule, Ipv4Net, PortRange, Rule, Target};

/// Most entries of one policy.
pub const ENTRIES_MAX: usize = 1024;

/// Ports on which the first bytes of a TCP flow name the host they are for (HTTP `Host`, TLS server name).
pub const NAMED_PORTS: [u16; 2] = [80, 443];

/// An allow list or a deny list; at most [`ENTRIES_MAX`] entries.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressPolicy {
    /// Only these; an empty list closes everything.
    Allow(Vec<Rule>),
    /// All but these; an empty list opens everything that is not closed by default.
    Deny(Vec<Rule>),
}

impl EgressPolicy {
    /// Everything that is not closed by default.
    pub fn open() -> Self {
        EgressPolicy::Deny(Vec::new())
    }

    /// Nothing.
    pub fn closed() -> Self {
        EgressPolicy::Allow(Vec::new())
    }

    /// The rules of the list, whichever it is.
    pub fn rules(&self) -> &[Rule] {
        match self {
            EgressPolicy::Allow(rules) | EgressPolicy::Deny(rules) => rules,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_strings_on_the_wire() {
        let policy = EgressPolicy::Allow(vec!["a.example:443".parse().unwrap()]);
        let json = serde_json::to_string(&policy).unwrap();
        assert_eq!(json, r#"{"allow":["a.example:443"]}"#);
        assert_eq!(serde_json::from_str::<EgressPolicy>(&json).unwrap(), policy);
        assert!(serde_json::from_str::<EgressPolicy>(r#"{"allow":["::1"]}"#).is_err());
    }
}
