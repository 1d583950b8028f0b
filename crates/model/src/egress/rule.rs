//! One entry of a policy: its grammar and its canonical text.

use super::HostName;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// One entry of a list: whom, and on which ports.
///
/// Grammar: `*` | host name | `*.` host name | IPv4 | IPv4 `/` 0..32, each with optional `:port` or `:low-high`.
/// [`Display`](fmt::Display) gives the canonical text, which parses to the same rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    /// Whom it is about.
    pub target: Target,
    /// On which ports; `None` is all, and protocols without ports too.
    pub ports: Option<PortRange>,
}

/// Whom a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// `*`: everyone.
    Any,
    /// Exactly this name.
    Host(HostName),
    /// `*.name`: every name beneath it, at any depth, and not the name itself.
    Below(HostName),
    /// These addresses.
    Net(Ipv4Net),
}

/// An IPv4 range in CIDR form; the host bits are clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ipv4Net {
    base: Ipv4Addr,
    prefix_len: u8,
}

/// Ports `low` to `high`, both included; 1 <= low <= high.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// First port.
    pub low: u16,
    /// Last port.
    pub high: u16,
}

/// An entry is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{entry}': {problem}")]
pub struct BadRule {
    /// The entry as it came, cut to [`BadRule::SHOWN_MAX`] characters.
    pub entry: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl BadRule {
    /// Most characters of an entry that an error repeats.
    pub const SHOWN_MAX: usize = 100;
}

impl Ipv4Net {
    /// The range of `address` with `prefix_len` leading bits; `None` if there are more than 32.
    pub fn new(address: Ipv4Addr, prefix_len: u8) -> Option<Self> {
        let mask = mask(prefix_len)?;
        Some(Self { base: Ipv4Addr::from_bits(address.to_bits() & mask), prefix_len })
    }

    /// The range of one address.
    pub const fn host(address: Ipv4Addr) -> Self {
        Self { base: address, prefix_len: 32 }
    }

    /// A range known at compile time: `base` must have its host bits clear and `prefix_len` be at most 32.
    pub(super) const fn literal(base: [u8; 4], prefix_len: u8) -> Self {
        Self { base: Ipv4Addr::new(base[0], base[1], base[2], base[3]), prefix_len }
    }

    /// Whether `address` is in the range.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        mask(self.prefix_len).is_some_and(|mask| address.to_bits() & mask == self.base.to_bits())
    }

    /// Whether every address of `self` is in `outer`.
    pub fn is_within(&self, outer: &Ipv4Net) -> bool {
        self.prefix_len >= outer.prefix_len && outer.contains(self.base)
    }

    /// Whether this is the whole of IPv4.
    pub fn is_everything(&self) -> bool {
        self.prefix_len == 0
    }
}

fn mask(prefix_len: u8) -> Option<u32> {
    match prefix_len {
        0 => Some(0),
        1..=32 => Some(u32::MAX << (32 - prefix_len)),
        _ => None,
    }
}

impl FromStr for Ipv4Net {
    type Err = &'static str;

    /// Reads `a.b.c.d` or `a.b.c.d/len`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const PROBLEM: &str = "not a valid IPv4 CIDR";
        let (address, prefix_len) = match text.split_once('/') {
            Some((address, len)) => (address, number(len, 32).ok_or(PROBLEM)? as u8),
            None => (text, 32),
        };
        Ipv4Net::new(address.parse().map_err(|_| PROBLEM)?, prefix_len).ok_or(PROBLEM)
    }
}

impl PortRange {
    /// Whether `port` is in the range.
    pub fn contains(&self, port: u16) -> bool {
        (self.low..=self.high).contains(&port)
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        const PROBLEM: &str = "a port is a number from 1 to 65535 or a range low-high";
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let port = |text| number(text, u32::from(u16::MAX)).filter(|&n| n > 0).map(|n| n as u16).ok_or(PROBLEM);
        let (low, high) = (port(low)?, port(high)?);
        if low <= high { Ok(Self { low, high }) } else { Err(PROBLEM) }
    }
}

/// A decimal number of at most 5 digits and at most `max`; no sign, no space.
fn number(text: &str, max: u32) -> Option<u32> {
    let digits = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|&n: &u32| digits && n <= max)
}

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(entry: &str) -> Result<Self, Self::Err> {
        parse(entry.trim())
            .map_err(|problem| BadRule { entry: entry.chars().take(BadRule::SHOWN_MAX).collect(), problem })
    }
}

fn parse(value: &str) -> Result<Rule, &'static str> {
    if value.is_empty() {
        return Err("the entry is empty");
    }
    for (forbidden, problem) in [
        ("://", "an entry is a host, not a URL: leave out the scheme"),
        ("@", "credentials are not supported"),
        ("?", "query strings are not supported"),
        ("[", "IPv6 is not supported"),
    ] {
        if value.contains(forbidden) {
            return Err(problem);
        }
    }
    if value.parse::<Ipv6Addr>().is_ok() || value.bytes().filter(|&b| b == b':').count() > 1 {
        return Err("IPv6 is not supported");
    }
    let (host, ports) = match value.split_once(':') {
        Some((host, ports)) => (host, Some(PortRange::parse(ports)?)),
        None => (value, None),
    };
    Ok(Rule { target: parse_target(host)?, ports })
}

fn parse_target(host: &str) -> Result<Target, &'static str> {
    if host == "*" {
        return Ok(Target::Any);
    }
    if let Some((address, _)) = host.split_once('/') {
        let url = address.parse::<Ipv4Addr>().is_err();
        return if url {
            Err("an entry is a host or an IPv4 CIDR, without a path")
        } else {
            host.parse().map(Target::Net)
        };
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(Target::Net(Ipv4Net::host(address)));
    }
    if let Some(parent) = host.strip_prefix("*.") {
        return if parent.contains('*') { Err(WILDCARD) } else { HostName::parse(parent).map(Target::Below) };
    }
    if host.contains('*') { Err(WILDCARD) } else { HostName::parse(host).map(Target::Host) }
}

const WILDCARD: &str = "a wildcard is supported as the whole leftmost label only";

impl Rule {
    /// Whether the rule is about this name, whatever the port.
    pub fn matches_name(&self, name: &HostName) -> bool {
        match &self.target {
            Target::Host(host) => host == name,
            Target::Below(parent) => name.is_below(parent),
            Target::Any | Target::Net(_) => false,
        }
    }

    /// Whether the rule is about this address by address, whatever the port; a rule on names never is.
    pub fn matches_address(&self, address: Ipv4Addr) -> bool {
        match &self.target {
            Target::Any => true,
            Target::Net(net) => net.contains(address),
            Target::Host(_) | Target::Below(_) => false,
        }
    }

    /// Whether the rule is about `port`; `None` is a protocol without ports, which only a rule without ports covers.
    pub fn covers(&self, port: Option<u16>) -> bool {
        match (self.ports, port) {
            (None, _) => true,
            (Some(range), Some(port)) => range.contains(port),
            (Some(_), None) => false,
        }
    }

    /// Whether the rule is about names.
    pub fn is_by_name(&self) -> bool {
        matches!(self.target, Target::Host(_) | Target::Below(_))
    }

    /// Whether the rule is about everyone: `*` or `0.0.0.0/0`.
    pub fn is_everyone(&self) -> bool {
        match &self.target {
            Target::Any => true,
            Target::Net(net) => net.is_everything(),
            Target::Host(_) | Target::Below(_) => false,
        }
    }
}

impl TryFrom<String> for Rule {
    type Error = BadRule;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> String {
        rule.to_string()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Any => f.write_str("*")?,
            Target::Host(host) => write!(f, "{host}")?,
            Target::Below(parent) => write!(f, "*.{parent}")?,
            Target::Net(net) => write!(f, "{net}")?,
        }
        match self.ports {
            Some(PortRange { low, high }) if low == high => write!(f, ":{low}"),
            Some(PortRange { low, high }) => write!(f, ":{low}-{high}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Ipv4Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text() {
        for (entry, canonical) in [
            (" Example.com ", "example.com"),
            ("*.Example.com.:443", "*.example.com:443"),
            ("example.com:80-80", "example.com:80"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/0:1-65535", "0.0.0.0/0:1-65535"),
            ("8.8.8.8:53", "8.8.8.8/32:53"),
            ("*", "*"),
            ("Bücher.de", "xn--bcher-kva.de"),
        ] {
            assert_eq!(entry.parse::<Rule>().unwrap().to_string(), canonical, "{entry}");
        }
    }

    #[test]
    fn what_is_no_rule() {
        for (entry, problem) in [
            ("", "empty"),
            ("http://a.example", "URL"),
            ("a.example/path", "path"),
            ("user@a.example", "credentials"),
            ("a.example?q", "query"),
            ("::1", "IPv6"),
            ("[::1]:443", "IPv6"),
            ("2001:db8::/32", "IPv6"),
            ("a.*.example", "leftmost"),
            ("*a.example", "leftmost"),
            ("*.*.example", "leftmost"),
            ("a.example:0", "port"),
            ("a.example:65536", "port"),
            ("a.example:9-8", "port"),
            ("a.example:+80", "port"),
            ("a.example:", "port"),
            ("1.2.3.4/33", "CIDR"),
            ("1.2.3.4/", "CIDR"),
            ("1.2.3.256", "neither"),
            ("*.", "empty"),
        ] {
            let error = entry.parse::<Rule>().unwrap_err();
            assert!(error.to_string().contains(problem), "{entry}: {error}");
        }
    }

    #[test]
    fn an_error_repeats_a_bounded_part_of_the_entry() {
        let error = "a b".repeat(1000).parse::<Rule>().unwrap_err();
        assert_eq!(error.entry.chars().count(), BadRule::SHOWN_MAX);
    }
}
