use crate::http::Refusal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use warren_proto::guest::{Init, Mount};

/// Least entropy, bytes.
const ENTROPY_LEN_MIN: usize = 32;
/// Longest host name that the kernel takes, bytes.
const HOSTNAME_LEN_MAX: usize = 64;

/// An [`Init`] whose texts have been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) sandbox_id: String,
    pub(super) hostname: String,
    pub(super) now_unix_nanos: u64,
    pub(super) entropy: Vec<u8>,
    pub(super) machine_id: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) workdir: Option<String>,
    pub(super) user: Option<String>,
    pub(super) start_command: Option<Vec<String>>,
    pub(super) network: Option<Network>,
    /// Each before those below it.
    pub(super) mounts: Vec<Mount>,
}

/// The interface's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) address: Ipv4Addr,
    pub(super) prefix: u32,
    pub(super) gateway: Ipv4Addr,
    pub(super) dns: Ipv4Addr,
    pub(super) mtu: u32,
}

impl Asked {
    pub(super) fn parse(init: Init) -> Result<Self, Refusal> {
        let network = init.network.map(|network| parse_network(&network)).transpose()?;
        let Init {
            sandbox_id,
            hostname,
            now_unix_nanos,
            machine_id,
            env,
            workdir,
            user,
            start_command,
            mut mounts,
            ..
        } = init;
        let entropy = STANDARD.decode(init.entropy).ok().filter(|bytes| bytes.len() >= ENTROPY_LEN_MIN);
        let entropy = entropy.ok_or_else(|| {
            Refusal::bad_request(format!("entropy: expected base64 of at least {ENTROPY_LEN_MIN} bytes"))
        })?;
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if hostname.is_empty() || hostname.len() > HOSTNAME_LEN_MAX || !hostname.bytes().all(in_name) {
            return Err(Refusal::bad_request("hostname: expected 1 to 64 letters, digits and hyphens"));
        }
        if machine_id.len() != 32 || !machine_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Refusal::bad_request("machine_id: expected 32 hex digits"));
        }
        mounts.sort_by(|a, b| a.path.cmp(&b.path));
        let workdir = workdir.filter(|path| path != "/");
        let user = user.filter(|user| !user.is_empty());
        let start_command = start_command.filter(|argv| !argv.is_empty());
        Ok(Self {
            sandbox_id,
            hostname,
            now_unix_nanos,
            entropy,
            machine_id,
            env,
            workdir,
            user,
            start_command,
            network,
            mounts,
        })
    }
}

fn parse_network(network: &warren_proto::guest::GuestNetwork) -> Result<Network, Refusal> {
    let address = |name: &str, text: &str| {
        text.parse::<Ipv4Addr>().map_err(|_| Refusal::bad_request(format!("network.{name}: bad address {text:?}")))
    };
    let (ip, prefix) = network.address.split_once('/').unwrap_or((&network.address, ""));
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32);
    Ok(Network {
        address: address("address", ip)?,
        prefix: prefix.ok_or_else(|| Refusal::bad_request("network.address: expected a prefix length, such as /24"))?,
        gateway: address("gateway", &network.gateway)?,
        dns: address("dns", &network.dns)?,
        mtu: network.mtu,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_proto::guest::GuestNetwork;

    fn init() -> Init {
        Init {
            sandbox_id: "sabc".into(),
            hostname: "sabc".into(),
            now_unix_nanos: 1,
            entropy: STANDARD.encode([7; 32]),
            machine_id: "0123456789abcdef0123456789abcdef".into(),
            env: BTreeMap::new(),
            workdir: None,
            user: None,
            start_command: None,
            network: Some(GuestNetwork {
                address: "10.0.2.15/24".into(),
                gateway: "10.0.2.2".into(),
                dns: "10.0.2.3".into(),
                mtu: 1500,
            }),
            mounts: Vec::new(),
        }
    }

    #[test]
    fn a_whole_init_parses() {
        let network = Asked::parse(init()).unwrap().network.unwrap();
        assert_eq!((network.address, network.prefix), ("10.0.2.15".parse().unwrap(), 24));
    }

    #[test]
    fn each_bad_field_is_named() {
        type Spoil = fn(&mut Init);
        let bad: [(&str, Spoil); 5] = [
            ("entropy", |init| init.entropy = "AAAA".into()),
            ("hostname", |init| init.hostname = "a\nb".into()),
            ("machine_id", |init| init.machine_id = "xyz".into()),
            ("network.address", |init| init.network.as_mut().unwrap().address = "10.0.2.15".into()),
            ("network.gateway", |init| init.network.as_mut().unwrap().gateway = "::1".into()),
        ];
        for (field, spoil) in bad {
            let mut init = init();
            spoil(&mut init);
            let message = Asked::parse(init).unwrap_err().message;
            assert!(message.starts_with(field), "{field}: {message}");
        }
    }
}
