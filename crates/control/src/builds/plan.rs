//! Whose turn it is, and what has waited too long: pure.

use super::machine::State;
use crate::images::Owner;
use std::collections::HashMap;

/// Builds that may be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// In all.
    pub total: usize,
    /// Of one owner.
    pub per_owner: usize,
}

/// What the plan needs of a build that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) id: String,
    pub(crate) owner: Owner,
    pub(crate) state: State,
    pub(crate) upload_by_ms: u64,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Begin.
    Pick(String),
    /// Its context did not come in time.
    Expire(String),
}

/// What to do now. `builds` are in the order in which they were queued; nobody overtakes within one owner, and an owner that has
/// its share under way does not hold up the others.
pub(crate) fn plan(builds: &[Open], room: Room, now_ms: u64) -> Vec<Action> {
    let mut under_way: HashMap<&Owner, usize> = HashMap::new();
    let mut total = 0;
    for build in builds.iter().filter(|build| build.state == State::Building) {
        *under_way.entry(&build.owner).or_default() += 1;
        total += 1;
    }
    let mut actions = Vec::new();
    for build in builds {
        match build.state {
            State::Queued => {
                let of_owner = under_way.entry(&build.owner).or_default();
                if total < room.total && *of_owner < room.per_owner {
                    (*of_owner, total) = (*of_owner + 1, total + 1);
                    actions.push(Action::Pick(build.id.clone()));
                }
            }
            // An upload that is under way has a limit of its own.
            State::Awaiting | State::Uploaded if build.upload_by_ms <= now_ms => {
                actions.push(Action::Expire(build.id.clone()));
            }
            _ => {}
        }
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(id: &str, owner: &str, state: State) -> Open {
        Open { id: id.into(), owner: Owner::User(owner.into()), state, upload_by_ms: 100 }
    }

    fn picks(builds: &[Open]) -> Vec<Action> {
        plan(builds, Room { total: 3, per_owner: 2 }, 0)
    }

    #[test]
    fn each_owner_has_its_share() {
        use State::*;
        let builds = [
            open("1", "a", Building),
            open("2", "a", Queued),
            open("3", "a", Queued),
            open("4", "b", Queued),
            open("5", "c", Queued),
        ];
        assert_eq!(picks(&builds), [Action::Pick("2".into()), Action::Pick("4".into())]);
    }

    #[test]
    fn contexts_that_do_not_come() {
        use State::*;
        let builds =
            [open("1", "a", Awaiting), open("2", "a", Uploading), open("3", "a", Uploaded), open("4", "a", Building)];
        let room = Room { total: 3, per_owner: 2 };
        assert_eq!(plan(&builds, room, 99), []);
        assert_eq!(plan(&builds, room, 100), [Action::Expire("1".into()), Action::Expire("3".into())]);
    }
}
