//! Which URLs a registry host stands for. Pure.

use super::config::RegistryConfig;
use reqwest::Url;
use warren_model::reference::DOCKER_HUB;

/// Where Docker Hub's registry really is.
const DOCKER_HUB_REGISTRY: &str = "registry-1.docker.io";

/// One place to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// URL before `/v2/`, without a slash at its end.
    pub(super) base: String,
    /// Key of its login.
    pub(super) host: String,
    /// Whether it is a mirror and not the registry itself.
    pub(super) is_mirror: bool,
}

impl Endpoint {
    /// Whether only this machine is asked, so that no proxy must be.
    pub(super) fn is_loopback(&self) -> bool {
        let authority = self.base.split_once("://").map_or("", |(_, rest)| rest);
        is_loopback(authority.split('/').next().unwrap_or_default())
    }

    /// Whether the way to it is encrypted.
    pub(super) fn is_tls(&self) -> bool {
        self.base.starts_with("https://")
    }

    /// Whether an answer from `url` is its own, and not that of a place that it redirects to.
    pub(super) fn is_origin_of(&self, url: &Url) -> bool {
        self.base.parse::<Url>().is_ok_and(|base| base.origin() == url.origin())
    }

    /// `<base>/v2/<repository>/<kind>/<id>`.
    pub(super) fn url(&self, repository: &str, kind: &str, id: &str) -> String {
        format!("{}/v2/{repository}/{kind}/{id}", self.base)
    }
}

/// Mirrors of `host`, then the registry itself: plain HTTP on this machine, TLS elsewhere.
pub(super) fn endpoints(host: &str, config: &RegistryConfig) -> Vec<Endpoint> {
    let mirrors = config.mirrors.get(host).into_iter().flatten().map(|url| {
        let base = url.trim_end_matches('/').to_owned();
        let host = base.split_once("://").map_or(base.as_str(), |(_, rest)| rest).split('/').next();
        Endpoint { host: host.unwrap_or_default().to_owned(), base: base.clone(), is_mirror: true }
    });
    let scheme = if is_loopback(host) { "http" } else { "https" };
    let real = if host == DOCKER_HUB { DOCKER_HUB_REGISTRY } else { host };
    let own = Endpoint { base: format!("{scheme}://{real}"), host: host.to_owned(), is_mirror: false };
    mirrors.chain([own]).collect()
}

/// A configuration that cannot work, told before it is used.
pub(super) fn check(config: &RegistryConfig) -> Result<(), String> {
    for url in config.mirrors.values().flatten() {
        let known = url.starts_with("https://") || url.starts_with("http://");
        if !known || url.parse::<Url>().is_err() {
            return Err(format!("mirror {url:?} is not an http:// or https:// URL"));
        }
    }
    Ok(())
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases(host: &str, config: &RegistryConfig) -> Vec<String> {
        endpoints(host, config).into_iter().map(|e| e.base).collect()
    }

    #[test]
    fn plain_http_only_on_this_machine() {
        let config = RegistryConfig::default();
        for (host, base) in [
            ("localhost:5000", "http://localhost:5000"),
            ("127.0.0.1:5000", "http://127.0.0.1:5000"),
            ("127.9.9.9", "http://127.9.9.9"),
            ("[::1]:5000", "http://[::1]:5000"),
            ("ghcr.io", "https://ghcr.io"),
            ("localhost.example.com", "https://localhost.example.com"),
            ("127.0.0.1.example.com", "https://127.0.0.1.example.com"),
            ("docker.io", "https://registry-1.docker.io"),
        ] {
            assert_eq!(bases(host, &config), [base]);
        }
    }

    #[test]
    fn mirrors_come_first() {
        let mirrors = vec!["http://127.0.0.1:5000/".to_owned(), "https://m.example/hub".to_owned()];
        let config = RegistryConfig { mirrors: [("docker.io".to_owned(), mirrors)].into(), ..Default::default() };
        let all = endpoints("docker.io", &config);
        assert_eq!(all[0].base, "http://127.0.0.1:5000");
        assert_eq!((all[1].host.as_str(), all[2].host.as_str()), ("m.example", "docker.io"));
        assert_eq!(all[1].url("a/b", "manifests", "x"), "https://m.example/hub/v2/a/b/manifests/x");
        let bad = RegistryConfig { mirrors: [("x".to_owned(), vec!["m.example".to_owned()])].into(), ..config };
        assert!(check(&bad).is_err());
    }
}
