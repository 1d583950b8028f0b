//! What is closed whatever the policy says.

use super::Ipv4Net;
use std::net::Ipv4Addr;

/// Loopback, and "this host", which Linux takes for loopback: no rule opens them.
const NEVER: [Ipv4Net; 2] = [Ipv4Net::literal([0, 0, 0, 0], 8), Ipv4Net::literal([127, 0, 0, 0], 8)];

/// Closed unless a rule of an allow list lies within: link-local and cloud metadata, multicast, reserved and broadcast.
const DEFAULT: [Ipv4Net; 3] =
    [Ipv4Net::literal([169, 254, 0, 0], 16), Ipv4Net::literal([224, 0, 0, 0], 4), Ipv4Net::literal([240, 0, 0, 0], 4)];

/// Ranges that are closed by default. An allow list opens a part of them only by a rule on addresses that lies wholly
/// within the closed range: `10.1.2.3` opens one address of a closed `10.0.0.0/8`, `0.0.0.0/0` opens nothing of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedRanges(Vec<Ipv4Net>);

impl ClosedRanges {
    /// The ranges that are always closed, and `more`: the gateway's network, the node's own addresses, the cluster's.
    pub fn with(more: impl IntoIterator<Item = Ipv4Net>) -> Self {
        Self(DEFAULT.into_iter().chain(more).collect())
    }

    /// None besides loopback; for a destination that stands for a service which the node offers.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Whether no rule opens this address.
    pub(super) fn never_opens(&self, address: Ipv4Addr) -> bool {
        NEVER.iter().any(|net| net.contains(address))
    }

    /// The closed ranges that `address` is in.
    pub(super) fn around(&self, address: Ipv4Addr) -> impl Iterator<Item = &Ipv4Net> {
        self.0.iter().filter(move |net| net.contains(address))
    }

    /// Whether `address` is closed while no rule opens it.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.never_opens(address) || self.around(address).next().is_some()
    }
}
