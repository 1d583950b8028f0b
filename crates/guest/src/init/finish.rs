//! What of an `init` is done behind its answer: all that no request can see before its own turn comes.
//!
//! The client needs some milliseconds to turn the answer into its first command; files that are written meanwhile cost it nothing.
//! A fault here is told on the console and by what misses its effect; none of it is worth a sandbox.

use super::asked::Asked;
use super::{identity, root, stand_ins};
use crate::agent::Agent;
use crate::command::Defaults;
use crate::{generation, report};
use std::fs;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// What is still to be done.
pub(super) struct Unfinished {
    pub(super) asked: Asked,
    /// Name that the guest had in an earlier life.
    pub(super) old_hostname: Option<String>,
    /// Whether the root has just been mounted.
    pub(super) is_new_root: bool,
}

/// What commands start from; `None` until the guest is initialised. Finishes an `init` that is not yet.
pub fn defaults(agent: &Agent) -> Option<Rc<Defaults>> {
    finish(agent);
    agent.defaults.borrow().clone()
}

/// Does what is left, if anything.
pub(super) fn finish(agent: &Agent) {
    let Some(unfinished) = agent.guest.borrow_mut().unfinished.take() else { return };
    let Unfinished { asked, old_hostname, is_new_root } = unfinished;
    tell("identity", identity::write(&asked, old_hostname.as_deref()));
    tell("sandbox-id", generation::tell_sandbox(&asked.sandbox_id));
    if is_new_root {
        tell("generation", generation::link());
        tell("modules", root::mount_modules());
        tell("modprobe", root::provide_modprobe());
    }
    let workdir = asked.workdir.unwrap_or_else(|| "/".to_owned());
    if !Path::new(&workdir).exists() {
        tell("workdir", fs::create_dir_all(&workdir));
    }
    let path = asked.env.get("PATH");
    // A fork has the files that it has been looked for in.
    let known = agent.defaults.borrow().as_ref().filter(|old| old.env.get("PATH") == path).map(|old| old.stand_ins);
    let stand_ins = known.unwrap_or_else(|| stand_ins::are_needed(path.map(String::as_str)));
    let defaults = Defaults { env: asked.env, workdir, user: asked.user, hostname: asked.hostname, stand_ins };
    *agent.defaults.borrow_mut() = Some(Rc::new(defaults));
}

pub(super) fn tell(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        report!("init: {what}: {error}");
    }
}
