//! What a change of a tag does, or why it is refused: pure.

use super::{Owner, checked};
use warren_proto::http::Visibility;

/// What is asked for; the owner is resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) name: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) owner: Option<Owner>,
    pub(crate) visibility: Option<Visibility>,
}

/// Where a tag is and who may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) owner: Owner,
    pub(crate) name: String,
    pub(crate) tag: String,
    pub(crate) visibility: Visibility,
}

/// Why a change is not done; `code` is stable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Refusal { code, message: message.into() }
    }
}

/// The tag after the change. Whether its place is free is the store's to say. `is_admin`: of the server.
pub(crate) fn decide(before: &Standing, change: &Change, is_admin: bool) -> Result<Standing, Refusal> {
    let after = Standing {
        owner: change.owner.clone().unwrap_or_else(|| before.owner.clone()),
        name: change.name.clone().unwrap_or_else(|| before.name.clone()),
        tag: change.tag.clone().unwrap_or_else(|| before.tag.clone()),
        visibility: change.visibility.unwrap_or(before.visibility),
    };
    let invalid = |message: &str| Err(Refusal::new("invalid", message));
    match (&before.owner, &after.owner) {
        (before, after) if before == after => {}
        (_, Owner::Platform) if !is_admin => {
            return Err(Refusal::new("forbidden", "only an administrator of this server may promote an image"));
        }
        (Owner::User(_), Owner::Team(_)) | (_, Owner::Platform) => {}
        (Owner::Platform, _) => return invalid("an image of the platform stays the platform's"),
        (Owner::Team(_), _) => return invalid("an image of a team stays the team's"),
        (Owner::User(_), Owner::User(_)) => return invalid("an image of a person moves to a team only"),
    }
    let after = match (&after.owner, change.visibility) {
        (Owner::Platform, Some(Visibility::Private)) => return invalid("images of the platform are public"),
        (Owner::Platform, _) => Standing { visibility: Visibility::Public, ..after },
        _ => after,
    };
    let is_renamed = (&before.owner, &before.name, &before.tag) != (&after.owner, &after.name, &after.tag);
    if is_renamed {
        checked(&after.name, &after.tag, after.owner == Owner::Platform).map_err(|bad| Refusal::new("invalid", bad))?;
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(owner: Owner) -> Standing {
        Standing { owner, name: "app".into(), tag: "v1".into(), visibility: Visibility::Private }
    }

    fn to(owner: Owner) -> Change {
        Change { owner: Some(owner), ..Change::default() }
    }

    #[test]
    fn what_is_absent_stays() {
        let before = of(Owner::User("u1".into()));
        let change = Change { tag: Some("v2".into()), ..Change::default() };
        assert_eq!(decide(&before, &change, false), Ok(Standing { tag: "v2".into(), ..before.clone() }));
        assert_eq!(decide(&before, &Change::default(), false), Ok(before));
    }

    #[test]
    fn owners_move_one_way() {
        let (user, team) = (|| Owner::User("u1".into()), || Owner::Team("c1".into()));
        let code = |before: Owner, after: Owner, admin| decide(&of(before), &to(after), admin).map_err(|r| r.code);
        assert_eq!(code(user(), team(), false).unwrap().owner, team());
        assert_eq!(code(team(), user(), true), Err("invalid"));
        assert_eq!(code(user(), Owner::User("u2".into()), true), Err("invalid"));
        assert_eq!(code(Owner::Platform, user(), true), Err("invalid"));
        assert_eq!(code(user(), Owner::Platform, false), Err("forbidden"));
        assert_eq!(code(team(), Owner::Platform, true).unwrap().visibility, Visibility::Public);
        let private = Change { visibility: Some(Visibility::Private), ..to(Owner::Platform) };
        assert_eq!(decide(&of(user()), &private, true).unwrap_err().code, "invalid");
    }

    #[test]
    fn names_are_checked_where_they_change() {
        let before = of(Owner::User("u1".into()));
        for (name, tag) in [(Some("A"), None), (Some("a/b"), None), (None, Some("-x"))] {
            let change = Change { name: name.map(Into::into), tag: tag.map(Into::into), ..Change::default() };
            assert_eq!(decide(&before, &change, true).unwrap_err().code, "invalid");
        }
    }
}
