use super::{FieldError, Invalid, limits};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use warren_model::egress::{EgressPolicy, Rule};

/// A policy as clients write it: at most one list is not null. Both null closes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressLists {
    /// Only these; empty closes everything.
    #[serde(default)]
    pub allowlist: Option<Vec<String>>,
    /// All but these; empty opens everything.
    #[serde(default)]
    pub denylist: Option<Vec<String>>,
}

/// Answer of `GET` and `PUT /sandbox/{id}/egress-policy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressStatus {
    /// What was asked for, in canonical form.
    pub policy: EgressLists,
    /// Grows with each change.
    pub generation: u64,
    /// What the sandbox goes by.
    pub applied_generation: u64,
    /// Whether the two are equal.
    pub applied: bool,
}

impl EgressLists {
    /// The policy that the lists mean. `names` are the two fields as the request spells them, for errors.
    pub fn to_policy(&self, names: [&str; 2]) -> Result<EgressPolicy, Invalid> {
        match (&self.allowlist, &self.denylist) {
            (Some(_), Some(_)) => {
                Err(FieldError::body(names[0], format!("cannot be given together with {}", names[1])).into())
            }
            (Some(allow), None) => rules(names[0], allow).map(EgressPolicy::Allow),
            (None, Some(deny)) => rules(names[1], deny).map(EgressPolicy::Deny),
            (None, None) => Ok(EgressPolicy::Deny(Vec::new())),
        }
    }
}

impl From<&EgressPolicy> for EgressLists {
    fn from(policy: &EgressPolicy) -> Self {
        let words = |rules: &[Rule]| Some(rules.iter().map(|rule| rule.to_string()).collect());
        match policy {
            EgressPolicy::Allow(rules) => EgressLists { allowlist: words(rules), denylist: None },
            EgressPolicy::Deny(rules) => EgressLists { allowlist: None, denylist: words(rules) },
        }
    }
}

fn rules(field: &str, entries: &[String]) -> Result<Vec<Rule>, Invalid> {
    if entries.len() > limits::EGRESS_ENTRIES_MAX {
        let msg = format!("at most {} entries, got {}", limits::EGRESS_ENTRIES_MAX, entries.len());
        return Err(FieldError::body(field, msg).into());
    }
    let mut rules = Vec::with_capacity(entries.len());
    let mut errors = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        match entry.parse::<Rule>() {
            Ok(rule) => rules.push(rule),
            Err(error) => errors.push(FieldError::at(&[field], at, "", error.to_string())),
        }
    }
    if errors.is_empty() { Ok(rules) } else { Err(Invalid { errors }) }
}
