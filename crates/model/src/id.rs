use std::fmt;

/// Longest id, in bytes.
const LEN_MAX: usize = 24;

/// The text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an id: expected 2 to 24 characters of a-z and 0-9, a letter first")]
pub struct BadId;

/// `prefix` and 16 characters of base 32, made of 80 bits that the caller drew at random.
fn made(prefix: &str, bits: u128) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let letters = (0..16).map(|i| ALPHABET[(bits >> (5 * i)) as usize & 31] as char);
    prefix.chars().chain(letters).collect()
}

fn is_id(text: &str) -> bool {
    let bytes = text.as_bytes();
    (2..=LEN_MAX).contains(&bytes.len())
        && bytes[0].is_ascii_lowercase()
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// A sandbox's id: 2 to 24 characters of `a-z0-9`, starting with a letter, never used twice.
///
/// Short, because `<port>-<id>` must be one DNS label; safe as a file name and as a path segment by construction.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxId(String);

impl SandboxId {
    /// Longest id, in bytes.
    pub const LEN_MAX: usize = LEN_MAX;

    /// Words that share a path level with ids in the public API and so can never be one.
    const RESERVED: [&'static str; 4] = ["volumes", "networks", "checkpoints", "snapshots"];

    /// Makes an id from 80 bits that the caller drew at random: `s` and 16 characters of base 32.
    pub fn from_bits(bits: u128) -> Self {
        Self(made("s", bits))
    }

    /// Parses an id that came from outside.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        if is_id(text) && !Self::RESERVED.contains(&text) { Ok(Self(text.to_owned())) } else { Err(BadId) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A snapshot's id, of the same letters as a sandbox's, and as safe.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotId(String);

impl SnapshotId {
    /// Makes an id from 80 bits that the caller drew at random: `snap` and 16 characters of base 32.
    pub fn from_bits(bits: u128) -> Self {
        Self(made("snap", bits))
    }

    /// Parses an id that came from outside.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        if is_id(text) { Ok(Self(text.to_owned())) } else { Err(BadId) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SnapshotId {
    type Error = BadId;

    fn try_from(text: String) -> Result<Self, BadId> {
        Self::parse(&text)
    }
}

impl From<SnapshotId> for String {
    fn from(id: SnapshotId) -> Self {
        id.0
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_parse() {
        for bits in [0, u128::MAX, 0x1234_5678_9abc_def0_1234] {
            let id = SandboxId::from_bits(bits);
            assert_eq!(SandboxId::parse(id.as_str()), Ok(id));
        }
    }

    #[test]
    fn bad_ids_are_refused() {
        for bad in ["", "a", "1a", "volumes", "checkpoints", "a/b", "..", "a\0b", "A1", "a-b", &"a".repeat(25)] {
            assert_eq!(SandboxId::parse(bad), Err(BadId), "{bad:?}");
        }
    }
}
