use std::fmt;

/// A checkpoint's id: 2 to 32 characters of `a-z0-9`, starting with a letter, never used twice. Safe as a file name and as a path segment
/// by construction.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckpointId(String);

/// The text is not a checkpoint id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a checkpoint id: expected 2 to 32 characters of a-z and 0-9, a letter first")]
pub struct BadCheckpointId;

impl CheckpointId {
    /// Longest id, in bytes.
    pub const LEN_MAX: usize = 32;

    /// Parses an id that came from outside.
    pub fn parse(text: &str) -> Result<Self, BadCheckpointId> {
        let bytes = text.as_bytes();
        let good = (2..=Self::LEN_MAX).contains(&bytes.len())
            && bytes[0].is_ascii_lowercase()
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if good { Ok(Self(text.to_owned())) } else { Err(BadCheckpointId) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_safe_name() {
        for good in ["k1", "kabc234", &"k".repeat(32)] {
            assert_eq!(CheckpointId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "k", "1k", "K1", "k-1", "k/1", "k.", "..", &"k".repeat(33)] {
            assert_eq!(CheckpointId::parse(bad), Err(BadCheckpointId), "{bad}");
        }
    }
}
