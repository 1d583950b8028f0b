//! The host's resolvers.

use super::PORT;
use std::net::{IpAddr, SocketAddr};

/// Most resolvers that are asked.
const RESOLVERS_MAX: usize = 8;
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The resolvers of the host as of now; none if it has no readable `/etc/resolv.conf`.
pub(super) fn of_host() -> Vec<SocketAddr> {
    // A small local file; read anew each time, since it follows the host from network to network.
    std::fs::read_to_string(RESOLV_CONF).map(|text| parse(&text)).unwrap_or_default()
}

fn parse(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address: IpAddr = words.next().filter(|&word| word == "nameserver").and(words.next())?.parse().ok()?;
        Some(SocketAddr::new(address, PORT))
    };
    text.lines().filter_map(address).take(RESOLVERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nameserver_lines_count() {
        let text = "# nameserver 9.9.9.9\nsearch a.example\nnameserver 1.2.3.4\n nameserver\t::1 # x\nnameserver what\nnameserver\n";
        assert_eq!(parse(text), ["1.2.3.4:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        assert_eq!(parse(&"nameserver 1.1.1.1\n".repeat(100)).len(), RESOLVERS_MAX);
    }
}
