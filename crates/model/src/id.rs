use std::fmt;

/// A sandbox's id: 2 to 24 characters of `a-z0-9`, starting with a letter, never used twice.
///
/// Short, because `<port>-<id>` must be one DNS label; safe as a file name and as a path segment by construction.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxId(String);

/// The text is not a sandbox id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a sandbox id: expected 2 to 24 characters of a-z and 0-9, a letter first")]
pub struct BadId;

impl SandboxId {
    /// Longest id, in bytes.
    pub const LEN_MAX: usize = 24;

    /// Words that share a path level with ids in the public API and so can never be one.
    const RESERVED: [&'static str; 3] = ["volumes", "networks", "checkpoints"];

    /// Makes an id from 80 bits that the caller drew at random: `s` and 16 characters of base 32.
    pub fn from_bits(bits: u128) -> Self {
        const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        let mut text = String::with_capacity(17);
        text.push('s');
        for i in 0..16 {
            text.push(ALPHABET[(bits >> (5 * i)) as usize & 31] as char);
        }
        Self(text)
    }

    /// Parses an id that came from outside.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let bytes = text.as_bytes();
        let shape = (2..=Self::LEN_MAX).contains(&bytes.len())
            && bytes[0].is_ascii_lowercase()
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if shape && !Self::RESERVED.contains(&text) { Ok(Self(text.to_owned())) } else { Err(BadId) }
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
