use super::{Session, Uuid};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;
use warren_proto::guest::command_session::{CommandSessionInfo, limits::ENDED_KEPT_SECS};

/// Commands that run at once, at most.
const RUNNING_MAX: usize = 2048;
/// Ended sessions remembered, at most; beyond, the oldest are forgotten early.
const ENDED_MAX: usize = 1024;

/// All sessions: those that run, and for a while those with a UUID that have ended.
#[derive(Default)]
pub struct Sessions(RefCell<Tables>);

#[derive(Default)]
struct Tables {
    running: HashMap<u32, Rc<Session>>,
    by_uuid: HashMap<Uuid, Rc<Session>>,
    ended: VecDeque<(Instant, Uuid)>,
}

impl Sessions {
    /// The session of that UUID, running or remembered.
    pub fn by_uuid(&self, uuid: Uuid) -> Option<Rc<Session>> {
        self.0.borrow().by_uuid.get(&uuid).cloned()
    }

    /// The running session whose leader has that pid.
    pub fn by_pid(&self, pid: u32) -> Option<Rc<Session>> {
        self.0.borrow().running.get(&pid).cloned()
    }

    /// Whether no further command may be started.
    pub fn is_full(&self) -> bool {
        self.0.borrow().running.len() >= RUNNING_MAX
    }

    /// The running sessions.
    pub fn list(&self) -> Vec<CommandSessionInfo> {
        self.0.borrow().running.values().map(|session| session.info.clone()).collect()
    }

    pub(super) fn add(&self, session: &Rc<Session>) {
        let mut tables = self.0.borrow_mut();
        tables.running.insert(session.pid, session.clone());
        if let Some(uuid) = session.uuid {
            tables.by_uuid.insert(uuid, session.clone());
        }
    }

    pub(super) fn ended(&self, session: &Session, now: Instant) {
        let mut tables = self.0.borrow_mut();
        // A later process may have got the pid, and the place, already.
        if tables.running.get(&session.pid).is_some_and(|running| std::ptr::eq(running.as_ref(), session)) {
            tables.running.remove(&session.pid);
        }
        if let Some(uuid) = session.uuid {
            tables.ended.push_back((now, uuid));
        }
        tables.forget_old(now);
    }
}

impl Tables {
    fn forget_old(&mut self, now: Instant) {
        let kept = Duration::from_secs(ENDED_KEPT_SECS);
        while let Some(&(at, uuid)) = self.ended.front() {
            if self.ended.len() <= ENDED_MAX && now.duration_since(at) < kept {
                return;
            }
            self.ended.pop_front();
            self.by_uuid.remove(&uuid);
        }
    }
}
