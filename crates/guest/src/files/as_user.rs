use crate::agent::Agent;
use crate::command::resolve_user;
use crate::http::Refusal;
use crate::init;
use crate::sys::assume_file_identity;
use std::io;

/// Whose rights apply to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUser {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl FileUser {
    /// The user of commands that name none.
    pub fn default_of(agent: &Agent) -> Result<Self, Refusal> {
        let defaults = init::defaults(agent).ok_or_else(Refusal::not_ready)?;
        let account = match defaults.user.as_deref() {
            None => return Ok(Self { uid: 0, gid: 0, groups: Vec::new() }),
            Some(user) => resolve_user(user).map_err(|error| Refusal::bad_request(error.to_string()))?,
        };
        Ok(Self { uid: account.uid, gid: account.gid, groups: account.groups })
    }

    fn is_root(&self) -> bool {
        self.uid == 0 && self.gid == 0
    }
}

/// Runs a job on files beside the agent's thread, with this user's rights. The job runs to its end even if the caller stops to
/// wait for it.
pub async fn run_as<T: Send + 'static>(
    user: &FileUser,
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let user = user.clone();
    let work = move || {
        if user.is_root() {
            return job();
        }
        assume_file_identity(user.uid, user.gid, &user.groups)?;
        let result = job();
        assume_file_identity(0, 0, &[])?;
        result
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
