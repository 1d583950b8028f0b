use super::{FieldError, Invalid, Sandbox, limits};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use warren_model::Status;

/// Answer of `GET /sandbox`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxList {
    /// The page, newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Sandboxes on all pages.
    pub total: u64,
    /// This page, from 1.
    pub page: u32,
    /// Sandboxes on a full page.
    pub per_page: u32,
    /// Whether another page follows.
    pub has_next: bool,
}

/// Query of `GET /sandbox`; all conditions hold together.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// From 1.
    #[param(value_type = Option<u32>)]
    pub page: u32,
    /// At most [`limits::PER_PAGE_MAX`]; more is cut to it.
    #[param(value_type = Option<u32>)]
    pub per_page: u32,
    /// Of this team; absent is the caller's personal scope.
    pub team_id: Option<String>,
    /// Made by this user.
    pub user_id: Option<String>,
    /// In this status.
    #[param(value_type = Option<String>)]
    pub status: Option<Status>,
    /// With all of these labels; the key is repeated.
    pub labels: Vec<String>,
    /// `true` hides ended ones; `false` hides nothing.
    #[param(value_type = Option<bool>)]
    pub is_active: bool,
}

impl Default for ListQuery {
    fn default() -> Self {
        ListQuery {
            page: 1,
            per_page: limits::PER_PAGE_DEFAULT,
            team_id: None,
            user_id: None,
            status: None,
            labels: Vec::new(),
            is_active: false,
        }
    }
}

impl ListQuery {
    /// Reads the decoded pairs of a query string; unknown keys are ignored, empty values count as absent.
    pub fn from_pairs<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> Result<Self, Invalid> {
        let mut query = ListQuery::default();
        let mut errors = Vec::new();
        for (key, value) in pairs {
            let value = value.as_ref();
            if !value.is_empty() {
                query.take(key.as_ref(), value).unwrap_or_else(|error| errors.push(error));
            }
        }
        if query.labels.len() > limits::LABEL_FILTERS_MAX {
            errors.push(FieldError::query("labels", format!("at most {}", limits::LABEL_FILTERS_MAX)));
        }
        if errors.is_empty() { Ok(query) } else { Err(Invalid { errors }) }
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), FieldError> {
        match key {
            "page" => self.page = positive(key, value)?,
            "per_page" => self.per_page = positive(key, value)?.min(limits::PER_PAGE_MAX),
            "team_id" => self.team_id = Some(value.to_owned()),
            "user_id" => self.user_id = Some(value.to_owned()),
            "status" => {
                let word = value.to_ascii_uppercase();
                let words = || Status::ALL.map(Status::as_str).join(", ");
                let status =
                    Status::parse(&word).ok_or_else(|| FieldError::query(key, format!("one of {}", words())))?;
                self.status = Some(status);
            }
            "labels" => self.labels.push(value.to_owned()),
            "is_active" => match value.to_ascii_lowercase().as_str() {
                "true" | "1" => self.is_active = true,
                "false" | "0" => self.is_active = false,
                _ => return Err(FieldError::query(key, "true or false")),
            },
            _ => {}
        }
        Ok(())
    }
}

pub(super) fn positive(key: &str, value: &str) -> Result<u32, FieldError> {
    match value.parse::<u32>() {
        Ok(number) if number >= 1 => Ok(number),
        _ => Err(FieldError::query(key, "a whole number from 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_query_of_the_cli() {
        let pairs = [("page", "2"), ("per_page", "5000"), ("labels", "a"), ("labels", "b"), ("is_active", "false")];
        let query = ListQuery::from_pairs(pairs.into_iter().chain([("status", "RUNNING"), ("new", "x")])).unwrap();
        let expected = ListQuery {
            page: 2,
            per_page: limits::PER_PAGE_MAX,
            status: Some(Status::Running),
            labels: vec!["a".into(), "b".into()],
            ..ListQuery::default()
        };
        assert_eq!(query, expected);
        assert!(ListQuery::from_pairs([("page", "0")]).is_err());
        assert!(ListQuery::from_pairs([("status", "TERMINATING")]).is_err());
    }

    proptest! {
        #[test]
        fn any_query_is_read_or_refused(pairs in prop::collection::vec(("(page|per_page|status|is_active|labels|x)", ".{0,12}"), 0..8)) {
            if let Ok(query) = ListQuery::from_pairs(pairs) {
                prop_assert!(query.page >= 1 && (1..=limits::PER_PAGE_MAX).contains(&query.per_page));
            }
        }
    }
}
