use super::event::{Channel, Ending, end_event, keepalive_frame};
use super::input::InputQueue;
use super::output::{Progress, Source};
use super::repeats::Repeats;
use super::watcher::Watcher;
use super::{Newcomers, Session, Uuid};
use crate::agent::Agent;
use crate::command::{Launched, Streams};
use crate::process::Exit;
use crate::sys::watch;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use warren_proto::guest::command_session::{Code, CommandSessionInfo, ConnectError, limits::KEEPALIVE_SECS};

/// How long a command's output is waited for after its leader has ended: what others of its processes print last.
const GRACE: Duration = Duration::from_millis(50);
/// How long a killed command's end is waited for before its stream ends without.
const KILL_WAIT: Duration = Duration::from_millis(100);
/// Idle time of a stream before a keep-alive event.
const KEEPALIVE: Duration = Duration::from_secs(KEEPALIVE_SECS);
/// Chunks moved in one turn, so that one busy command leaves time for the others.
const MOVES_PER_TURN: usize = 8;

/// Starts to drive a command that was just launched. With `kill_at`, all of its processes are killed at that time, if its
/// leader still runs.
pub fn start(
    agent: &Rc<Agent>,
    launched: Launched,
    info: CommandSessionInfo,
    uuid: Option<Uuid>,
    fingerprint: u64,
    kill_at: Option<Instant>,
) -> io::Result<Rc<Session>> {
    let Launched { pid, streams, cgroup, exit } = launched;
    let mut sources = Vec::with_capacity(2);
    let (input, terminal) = match streams {
        Streams::Terminal(terminal) => {
            let terminal = Rc::new(watch(terminal, Interest::READABLE | Interest::WRITABLE)?);
            sources.push(Source::new(terminal.clone(), Channel::Terminal));
            (Some(InputQueue::new(terminal.clone(), true)), Some(terminal))
        }
        Streams::Pipes { stdin, stdout, stderr } => {
            sources.push(Source::new(readable(stdout)?, Channel::Stdout));
            if let Some(stderr) = stderr {
                sources.push(Source::new(readable(stderr)?, Channel::Stderr));
            }
            let stdin = stdin.map(|stdin| watch(stdin, Interest::WRITABLE)).transpose()?;
            (stdin.map(|stdin| InputQueue::new(Rc::new(stdin), false)), None)
        }
    };
    let session = Rc::new(Session {
        pid,
        uuid,
        fingerprint,
        info,
        input,
        terminal,
        signals: RefCell::new(Repeats::new()),
        newcomers: RefCell::new(Newcomers::default()),
        watching: Cell::new(0),
        cgroup: RefCell::new(cgroup),
        ended: OnceCell::new(),
    });
    agent.sessions.add(&session);
    let driver = Driver {
        agent: agent.clone(),
        session: session.clone(),
        sources,
        watchers: Vec::new(),
        exit: Some(exit),
        phase: Phase::Running { kill_at },
        timer: Box::pin(tokio::time::sleep_until(Instant::now() + KEEPALIVE)),
        oom_kills_before: agent.oom.summary().0,
    };
    tokio::task::spawn_local(driver.run());
    Ok(session)
}

fn readable(file: OwnedFd) -> io::Result<Rc<AsyncFd<OwnedFd>>> {
    Ok(Rc::new(watch(file, Interest::READABLE)?))
}

/// Where a session is in its life.
///
/// ```text
/// Running ──leader ends──► Grace ──time, or all output closed──► Draining ──all read──► end
///    └──time is up: all killed──► Killed ──leader reaped, or time──► end
/// ```
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The leader runs.
    Running {
        /// When all is killed.
        kill_at: Option<Instant>,
    },
    /// The leader has ended; others may still print.
    Grace { exit: Exit, until: Instant },
    /// What was printed so far is read to its end.
    Draining { exit: Exit },
    /// All was killed for being late.
    Killed { until: Instant },
}

struct Driver {
    agent: Rc<Agent>,
    session: Rc<Session>,
    sources: Vec<Source>,
    watchers: Vec<Watcher>,
    exit: Option<oneshot::Receiver<Exit>>,
    phase: Phase,
    timer: Pin<Box<Sleep>>,
    oom_kills_before: u64,
}

impl Driver {
    async fn run(mut self) {
        let ending = poll_fn(|cx| self.poll(cx)).await;
        self.admit_newcomers();
        for watcher in self.watchers.drain(..) {
            watcher.end(&ending);
        }
        let now = Instant::now();
        // Nobody else sets it.
        let _ = self.session.ended.set(ending);
        self.agent.sessions.ended(&self.session, now);
        self.session.signals.borrow_mut().keep(0);
        if let Some(input) = &self.session.input {
            input.close();
        }
        self.sources.clear();
        if let Some(cgroup) = self.session.cgroup.take() {
            // Off the path of the answer, which is in the connection's hands now.
            tokio::task::yield_now().await;
            self.agent.cgroups.release(cgroup);
        }
    }

    /// One turn: looks at everything that can happen, in an order that lets ends and deadlines come before more output.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        self.session.newcomers.borrow_mut().driver = Some(cx.waker().clone());
        self.admit_newcomers();
        self.watchers.retain_mut(|watcher| watcher.poll_gone(cx).is_pending());
        self.session.watching.set(self.watchers.len());
        let leader_ended = self.poll_exit(cx);
        self.keep_time(Instant::now());
        if let Phase::Killed { until } = self.phase
            && (leader_ended.is_some() || until <= Instant::now())
        {
            return Poll::Ready(Ending::Error(ConnectError::new(
                Code::DeadlineExceeded,
                "the call's time is up; all processes of the command were killed",
            )));
        }
        let moved_all = self.poll_outputs(cx);
        if let Phase::Grace { exit, .. } | Phase::Draining { exit } = self.phase
            && self.sources.is_empty()
        {
            return Poll::Ready(self.ending(exit));
        }
        if !moved_all {
            cx.waker().wake_by_ref();
        }
        self.arm_timer(cx);
        Poll::Pending
    }

    fn admit_newcomers(&mut self) {
        let newcomers = std::mem::take(&mut self.session.newcomers.borrow_mut().waiting);
        self.watchers.extend(newcomers.into_iter().map(|watcher| watcher.begin(self.session.pid)));
    }

    fn poll_exit(&mut self, cx: &mut Context<'_>) -> Option<Exit> {
        let Poll::Ready(exit) = Pin::new(self.exit.as_mut()?).poll(cx) else { return None };
        self.exit = None;
        // The reaper lives as long as the agent.
        let exit = exit.unwrap_or(Exit::Signal(9));
        if let Phase::Running { .. } = self.phase {
            self.phase = Phase::Grace { exit, until: Instant::now() + GRACE };
        }
        Some(exit)
    }

    /// Does what the time asks for.
    fn keep_time(&mut self, now: Instant) {
        match self.phase {
            Phase::Running { kill_at: Some(at) } if at <= now => {
                self.session.kill_all();
                self.phase = Phase::Killed { until: now + KILL_WAIT };
            }
            Phase::Grace { exit, until } if until <= now => {
                self.sources.iter_mut().for_each(Source::limit_to_present);
                self.phase = Phase::Draining { exit };
            }
            _ => {}
        }
        for index in (0..self.watchers.len()).rev() {
            let watcher = &mut self.watchers[index];
            if watcher.deadline.is_some_and(|deadline| deadline <= now) {
                self.watchers.remove(index).expire();
            } else if watcher.last_sent + KEEPALIVE <= now {
                // One that has gone is found by the next poll.
                let _ = watcher.out.send_now(keepalive_frame());
                watcher.last_sent = now;
            }
        }
    }

    /// Moves output; false where more could be moved at once.
    fn poll_outputs(&mut self, cx: &mut Context<'_>) -> bool {
        let mut scratch = self.agent.scratch.borrow_mut();
        for _ in 0..MOVES_PER_TURN {
            let mut moved = false;
            let watchers = &mut self.watchers;
            self.sources.retain_mut(|source| match source.poll_move(watchers, &mut scratch, cx) {
                Poll::Pending => true,
                Poll::Ready(Progress::Moved) => {
                    moved = true;
                    true
                }
                Poll::Ready(Progress::Closed) => false,
            });
            if !moved {
                return true;
            }
        }
        false
    }

    fn ending(&self, exit: Exit) -> Ending {
        if exit.was_killed() && self.agent.oom.has_killed(self.session.pid) {
            // The public client asks for the sandbox's error context on this code, and finds the reason there.
            return Ending::Error(ConnectError::new(Code::NotFound, "killed for lack of memory"));
        }
        // The log does not tell whose child was killed; one that was while this command ran and then failed is taken for its.
        let child_killed = exit != Exit::Code(0) && self.agent.oom.summary().0 > self.oom_kills_before;
        Ending::Event(end_event(exit, child_killed))
    }

    fn arm_timer(&mut self, cx: &mut Context<'_>) {
        let phase = match self.phase {
            Phase::Running { kill_at } => kill_at,
            Phase::Grace { until, .. } | Phase::Killed { until } => Some(until),
            Phase::Draining { .. } => None,
        };
        let watchers = self.watchers.iter().flat_map(|w| [w.deadline, Some(w.last_sent + KEEPALIVE)]).flatten();
        let Some(next) = watchers.chain(phase).min() else { return };
        if self.timer.deadline() != next {
            self.timer.as_mut().reset(next);
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}
