use crate::sys::watch;
use rustix::fs::{Mode, OFlags, SeekFrom};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use warren_proto::guest::OomKill;

/// Kills remembered, to be compared with the processes that end.
const REMEMBERED_MAX: usize = 256;
/// Longest record of the kernel's log, bytes.
const RECORD_LEN_MAX: usize = 8192;

/// Reads the kernel's log for processes that it killed because the machine ran out of memory. (A container of the guest that
/// meets its own limit is the guest's affair.)
pub struct OomWatch {
    log: Option<AsyncFd<OwnedFd>>,
    seen: RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    kills: u64,
    last: Option<OomKill>,
    recent: VecDeque<u32>,
}

impl OomWatch {
    /// Watches from now on. Where there is no log to read, nothing is ever seen.
    pub fn new() -> Rc<Self> {
        Rc::new(Self { log: open_log().ok(), seen: RefCell::default() })
    }

    /// Whether the kernel has killed this process for lack of memory.
    pub fn has_killed(&self, pid: u32) -> bool {
        self.read_log();
        self.seen.borrow().recent.contains(&pid)
    }

    /// Number of kills so far, and the last one.
    pub fn summary(&self) -> (u64, Option<OomKill>) {
        self.read_log();
        let seen = self.seen.borrow();
        (seen.kills, seen.last.clone())
    }

    /// Keeps up with the log for ever, so that no record is overwritten unread.
    pub async fn run(&self) {
        let Some(log) = &self.log else { return };
        while let Ok(mut guard) = log.readable().await {
            guard.clear_ready();
            self.read_log();
        }
    }

    fn read_log(&self) {
        let Some(log) = &self.log else { return };
        let mut record = [0u8; RECORD_LEN_MAX];
        loop {
            match rustix::io::read(log.get_ref(), &mut record) {
                Ok(0) => return,
                Ok(len) => {
                    if let Some(kill) = parse_record(&record[..len]) {
                        self.seen.borrow_mut().add(kill);
                    }
                }
                // Records were overwritten before we read them: go on with what there is.
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

impl Seen {
    fn add(&mut self, kill: OomKill) {
        if self.recent.len() == REMEMBERED_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(kill.pid);
        self.kills += 1;
        self.last = Some(kill);
    }
}

fn open_log() -> io::Result<AsyncFd<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = rustix::fs::open("/dev/kmsg", flags, Mode::empty())?;
    rustix::fs::seek(&log, SeekFrom::End(0))?;
    watch(log, Interest::READABLE)
}

/// Reads `<prio>,<seq>,<time>,<flags>;Out of memory: Killed process PID (NAME) total-vm:...`.
fn parse_record(record: &[u8]) -> Option<OomKill> {
    let text = str::from_utf8(record).ok()?;
    let (prefix, message) = text.split_once(';')?;
    // Priorities from 8 on are of records that programs have written.
    let priority: u32 = prefix.split(',').next()?.parse().ok()?;
    if priority >= 8 {
        return None;
    }
    let rest = message.strip_prefix("Out of memory: Killed process ")?;
    let (pid, rest) = rest.split_once(" (")?;
    // A name may itself hold a bracket.
    let (name, _) = rest.rsplit_once(") total-vm:")?;
    Some(OomKill { pid: pid.parse().ok()?, name: name.chars().take(16).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: &str = "3,901,5160,-;Out of memory: Killed process 123 (py (x) thon) total-vm:1kB, anon-rss:1kB";

    #[test]
    fn a_kill_of_the_kernel_is_read() {
        assert_eq!(parse_record(KILLED.as_bytes()), Some(OomKill { pid: 123, name: "py (x) thon".into() }));
    }

    #[test]
    fn what_programs_write_and_containers_meet_is_ignored() {
        let forged = KILLED.replacen('3', "11", 1);
        let container = KILLED.replace("Out of memory", "Memory cgroup out of memory");
        for text in
            [forged.as_str(), container.as_str(), "6,1,2,-;eth0: up", "", ";", "3;Out of memory: Killed process"]
        {
            assert_eq!(parse_record(text.as_bytes()), None, "{text}");
        }
    }
}
