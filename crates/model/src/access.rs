//! For whom an image is fetched.

use std::fmt;

/// A login at a registry. Its password is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// User.
    pub user: String,
    /// Password or access token.
    pub password: String,
}

/// For whom an image is fetched. It lives in memory only: no file of a node has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageAccess {
    /// Whose login it is: `user:ID` or `team:ID`.
    pub owner: String,
    /// The owner's saved login for the registry of the reference; `None`: anonymous, or what the node is configured with.
    pub login: Option<Login>,
}

impl ImageAccess {
    /// What may be seen through this alone: `None` is what everybody on the node may see, since a fetch without a login of one's
    /// own gets the same for all.
    pub fn scope(&self) -> Option<&str> {
        self.login.as_ref().map(|_| self.owner.as_str())
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_password() {
        let login = Login { user: "ann".to_owned(), password: "hunter2".to_owned() };
        let access = ImageAccess { owner: "user:1".to_owned(), login: Some(login) };
        assert!(format!("{access:?}").contains("ann") && !format!("{access:?}").contains("hunter2"));
    }
}
