//! What a sandbox may reach.

/// An allow list or a deny list; at most 1,024 entries.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressPolicy {
    /// Only these; an empty list closes everything.
    Allow(Vec<Rule>),
    /// All but these; an empty list opens everything that is not closed by default.
    Deny(Vec<Rule>),
}

/// One entry of a list, in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Rule(pub String);
