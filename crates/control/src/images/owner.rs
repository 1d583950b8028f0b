use warren_proto::http::{ImageOwner, OwnerType};

/// Whose an image is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A user's, by id.
    User(String),
    /// A team's, by id.
    Team(String),
    /// Nobody's: the platform's, for everyone.
    Platform,
}

impl Owner {
    /// As the store has it.
    pub(crate) fn key(&self) -> String {
        match self {
            Owner::User(id) => format!("user:{id}"),
            Owner::Team(id) => format!("team:{id}"),
            Owner::Platform => "platform".to_owned(),
        }
    }

    /// What [`Owner::key`] made.
    pub(crate) fn parse(key: &str) -> Option<Self> {
        match key.split_once(':') {
            Some(("user", id)) => Some(Owner::User(id.to_owned())),
            Some(("team", id)) => Some(Owner::Team(id.to_owned())),
            None if key == "platform" => Some(Owner::Platform),
            _ => None,
        }
    }

    /// The reference of one of its images. `slug`: of the user, if it is known.
    pub(crate) fn reference(&self, slug: Option<&str>, name: &str, tag: &str) -> String {
        match self {
            Owner::User(id) => format!("prime/{}/{name}:{tag}", slug.unwrap_or(id)),
            Owner::Team(id) => format!("prime/team-{id}/{name}:{tag}"),
            Owner::Platform => format!("{name}:{tag}"),
        }
    }

    /// Its kind, and the team's id.
    pub(crate) fn kind(&self) -> (OwnerType, Option<String>) {
        match self {
            Owner::User(_) => (OwnerType::Personal, None),
            Owner::Team(id) => (OwnerType::Team, Some(id.clone())),
            Owner::Platform => (OwnerType::Platform, None),
        }
    }

    /// As answers of changes show it.
    pub(crate) fn shown(&self) -> ImageOwner {
        match self {
            Owner::User(_) => ImageOwner::Personal,
            Owner::Team(id) => ImageOwner::Team { team_id: id.clone() },
            Owner::Platform => ImageOwner::Platform,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written() {
        for owner in [Owner::User("u1".into()), Owner::Team("c1".into()), Owner::Platform] {
            assert_eq!(Owner::parse(&owner.key()), Some(owner));
        }
        assert_eq!(Owner::parse("group:1"), None);
    }
}
