//! Image references: what a user may write, and the one text for what is meant.

use std::fmt;

/// Longest reference, bytes.
pub const LEN_MAX: usize = 512;
/// Tag where none is given.
pub const TAG_DEFAULT: &str = "latest";
/// Docker Hub's name.
pub const DOCKER_HUB: &str = "docker.io";

const DOCKER_HUB_NAMES: [&str; 3] = [DOCKER_HUB, "index.docker.io", "registry-1.docker.io"];
const OWNED_PREFIX: &str = "prime";
const TEAM_PREFIX: &str = "team-";
const REPOSITORY_LEN_MAX: usize = 255;
const TAG_LEN_MAX: usize = 128;

/// A content digest: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// Docker Hub, or a platform image of that name; no host was given or one of Docker Hub's.
    DockerHub,
    /// Another registry: `host` or `host:port`.
    Registry(String),
    /// An image of a user or a team of this platform.
    Owned {
        /// User slug, user id, or `team-<id>`.
        owner: String,
    },
}

/// Which version of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Version {
    /// What a name points at now.
    Tag(String),
    /// Exactly this content.
    Digest(Digest),
}

/// A checked reference. `Display` gives its canonical text, which parses to the same reference.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    source: Source,
    /// On Docker Hub with its namespace, so `library/ubuntu`.
    repository: String,
    version: Version,
}

/// The text is not an image reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an image reference: {problem}; expected [host[:port]/]name[:tag] or name@sha256:...")]
pub struct BadReference {
    /// What is wrong.
    pub problem: &'static str,
}

impl Digest {
    /// Parses a digest; algorithms other than SHA-256 are refused.
    pub fn parse(text: &str) -> Result<Self, BadReference> {
        let hex = text.strip_prefix("sha256:").ok_or(bad("a digest must start with sha256:"))?;
        if hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            Ok(Self(text.to_owned()))
        } else {
            Err(bad("a digest must be sha256: and 64 lower-case hexadecimal digits"))
        }
    }

    /// With its algorithm.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hexadecimal digits alone; safe as a file name.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Reference {
    /// Parses a reference where no user ids are known.
    pub fn parse(text: &str) -> Result<Self, BadReference> {
        Self::parse_with_users(text, |_| false)
    }

    /// Parses a reference in the order `prime/` prefix, legacy owner prefix (`team-...` or what `is_user` knows),
    /// registry host, Docker Hub.
    pub fn parse_with_users(text: &str, is_user: impl Fn(&str) -> bool) -> Result<Self, BadReference> {
        check_text(text)?;
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(Digest::parse(digest)?)),
            None => (text, None),
        };
        let (name, tag) = split_tag(name)?;
        let version = match (digest, tag) {
            (Some(digest), _) => Version::Digest(digest),
            (None, Some(tag)) => Version::Tag(tag.to_owned()),
            (None, None) => Version::Tag(TAG_DEFAULT.to_owned()),
        };
        let (source, repository) = split_source(name, is_user)?;
        check_repository(&repository)?;
        Ok(Self { source, repository, version })
    }

    /// Where it comes from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Repository within the source; on Docker Hub with its namespace.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Which version.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The digest, if the reference names one.
    pub fn digest(&self) -> Option<&Digest> {
        match &self.version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => None,
        }
    }

    /// Host and port of the registry to ask; `None` for an owned image, which no registry has.
    pub fn registry(&self) -> Option<&str> {
        match &self.source {
            Source::DockerHub => Some(DOCKER_HUB),
            Source::Registry(host) => Some(host),
            Source::Owned { .. } => None,
        }
    }

    /// Exactly this content of the same repository.
    pub fn at(&self, digest: &Digest) -> Reference {
        Reference { version: Version::Digest(digest.clone()), ..self.clone() }
    }

    /// Whether both name versions of the same repository. Owned names need only the same owner: no registry says who may have which, and
    /// whoever uses such a name was found to be allowed to.
    pub fn shares_repository_with(&self, other: &Reference) -> bool {
        match (&self.source, &other.source) {
            (Source::Owned { owner }, Source::Owned { owner: other }) => owner == other,
            (Source::Owned { .. }, _) | (_, Source::Owned { .. }) => false,
            _ => self.registry() == other.registry() && self.repository == other.repository,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::DockerHub => self.fmt_hub_name(f)?,
            Source::Registry(host) => write!(f, "{host}/{}", self.repository)?,
            Source::Owned { owner } => write!(f, "{OWNED_PREFIX}/{owner}/{}", self.repository)?,
        }
        match &self.version {
            Version::Tag(tag) => write!(f, ":{tag}"),
            Version::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

impl Reference {
    /// `ubuntu` for `library/ubuntu`; with the host where the name would else read as something other than Docker Hub's.
    fn fmt_hub_name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, rest) = self.repository.split_once('/').unwrap_or(("", &self.repository));
        if first == "library" && !rest.contains('/') {
            return f.write_str(rest);
        }
        if first == OWNED_PREFIX || first.starts_with(TEAM_PREFIX) || is_host(first) {
            write!(f, "{DOCKER_HUB}/")?;
        }
        f.write_str(&self.repository)
    }
}

/// The host of a registry as in canonical references, from how people write it: `GHCR.io`, `https://index.docker.io/v1/`.
pub fn parse_registry(text: &str) -> Result<String, BadReference> {
    let host = text.strip_prefix("https://").or(text.strip_prefix("http://")).unwrap_or(text);
    let host = host.split('/').next().unwrap_or_default().to_ascii_lowercase();
    if !is_host(&host) {
        return Err(bad("a registry is a host name with a dot, an address, localhost, or host:port"));
    }
    check_host(&host)?;
    Ok(if DOCKER_HUB_NAMES.contains(&host.as_str()) { DOCKER_HUB.to_owned() } else { host })
}

fn bad(problem: &'static str) -> BadReference {
    BadReference { problem }
}

fn check_text(text: &str) -> Result<(), BadReference> {
    if text.is_empty() {
        return Err(bad("it is empty"));
    }
    if text.len() > LEN_MAX {
        return Err(bad("it is longer than 512 bytes"));
    }
    if text.bytes().any(|b| b.is_ascii_whitespace() || b.is_ascii_control() || b == b'%' || !b.is_ascii()) {
        return Err(bad("it holds a character that no reference has"));
    }
    Ok(())
}

/// A colon after the last slash starts the tag; one before it is a port.
fn split_tag(name: &str) -> Result<(&str, Option<&str>), BadReference> {
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    let Some(colon) = name[last..].find(':') else { return Ok((name, None)) };
    let (name, tag) = (&name[..last + colon], &name[last + colon + 1..]);
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let fits = (1..=TAG_LEN_MAX).contains(&tag.len())
        && word(tag.as_bytes()[0])
        && tag.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'));
    if fits { Ok((name, Some(tag))) } else { Err(bad("a tag must have 1 to 128 of A-Z a-z 0-9 _ . -")) }
}

fn split_source(name: &str, is_user: impl Fn(&str) -> bool) -> Result<(Source, String), BadReference> {
    let Some((first, rest)) = name.split_once('/') else {
        return Ok((Source::DockerHub, format!("library/{name}")));
    };
    if first == OWNED_PREFIX {
        let (owner, name) = rest.split_once('/').ok_or(bad("an owned image is prime/<owner>/<name>:<tag>"))?;
        return owned(owner, name);
    }
    if first.starts_with(TEAM_PREFIX) || is_user(first) {
        return owned(first, rest);
    }
    if !is_host(first) {
        return Ok((Source::DockerHub, name.to_owned()));
    }
    check_host(first)?;
    let host = first.to_ascii_lowercase();
    if !DOCKER_HUB_NAMES.contains(&host.as_str()) {
        return Ok((Source::Registry(host), rest.to_owned()));
    }
    Ok((Source::DockerHub, if rest.contains('/') { rest.to_owned() } else { format!("library/{rest}") }))
}

fn owned(owner: &str, name: &str) -> Result<(Source, String), BadReference> {
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if owner.is_empty() || !owner.bytes().all(word) {
        return Err(bad("an owner must have only A-Z a-z 0-9 _ -"));
    }
    if name.contains('/') {
        return Err(bad("the name of an owned image must be one word"));
    }
    Ok((Source::Owned { owner: owner.to_owned() }, name.to_owned()))
}

fn is_host(segment: &str) -> bool {
    segment == "localhost" || segment.contains(['.', ':'])
}

/// `name`, `1.2.3.4` or `[::1]`, each with an optional port.
fn check_host(host: &str) -> Result<(), BadReference> {
    let problem = bad("the registry host is not a host name, address or host:port");
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            address.parse::<std::net::Ipv6Addr>().map_err(|_| problem.clone())?;
            (None, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or(problem.clone())?) })
        }
        None => match host.split_once(':') {
            Some((name, port)) => (Some(name), Some(port)),
            None => (Some(host), None),
        },
    };
    let label = |l: &str| {
        !l.is_empty()
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    let name_fits = name.is_none_or(|n| n.len() <= 253 && n.split('.').all(label));
    let port_fits = port.is_none_or(|p| p.bytes().all(|b| b.is_ascii_digit()) && p.parse::<u16>().is_ok_and(|n| n > 0));
    if name_fits && port_fits { Ok(()) } else { Err(problem) }
}

/// Lower-case words joined by `.`, `_`, `__` or dashes, in segments joined by `/`.
fn check_repository(repository: &str) -> Result<(), BadReference> {
    if repository.len() > REPOSITORY_LEN_MAX {
        return Err(bad("the name is longer than 255 bytes"));
    }
    if repository.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(bad("the name must be lower-case"));
    }
    if repository.split('/').all(is_segment) {
        Ok(())
    } else {
        Err(bad("each part of the name must be words of a-z 0-9 joined by . _ __ or -"))
    }
}

fn is_segment(segment: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = segment.as_bytes();
    let ends_are_words = bytes.first().is_some_and(|b| word(*b)) && bytes.last().is_some_and(|b| word(*b));
    ends_are_words
        && segment
            .split(|c: char| word(c as u8))
            .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|b| b == b'-'))
}

#[cfg(test)]
#[path = "reference_tests.rs"]
mod tests;
