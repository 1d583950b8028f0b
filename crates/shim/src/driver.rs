//! The one task that owns a sandbox: waits, acts, and tells `machine` what happened.

use crate::END_FILE;
use crate::api::{self, LayerReply, Requests};
use crate::channel::{self, Channel, GuestSender};
use crate::console::Console;
use crate::guest::{self, AskError, Guest, power_off, status};
use crate::layer;
use crate::machine::{self, Event};
use crate::snapshot;
use crate::start::{Parts, StartError, Started, start};
use hyper::Method;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{oneshot, watch};
use warren_model::EndReason;
use warren_proto::guest::{GuestStatus, IMAGE_UNUSABLE, Shutdown, VOLUME_UNUSABLE, paths};
use warren_proto::shim::{Boot, End, ShimState, Terminate, limits};
use warren_vmm::Vm;

/// Time that the guest gets on top of the grace period of a shutdown.
const SHUTDOWN_SLACK: Duration = Duration::from_secs(2);
/// Wait for the agent after a lost channel, before the next try.
const REOPEN_WAIT: Duration = Duration::from_secs(5);
/// Time between the close of QEMU's control socket and its end.
const VMM_DEATH_WAIT: Duration = Duration::from_millis(500);
/// Lines of console that explain a death.
const CONSOLE_LINES: usize = 12;

/// Wall clock, nanoseconds since 1970.
pub(crate) fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

fn now_ms() -> u64 {
    now_nanos() / 1_000_000
}

/// Why a sandbox is over, before it is cleaned up.
struct Over {
    reason: EndReason,
    message: String,
    grace: Duration,
    reply: Option<oneshot::Sender<ShimState>>,
}

impl Over {
    fn by_itself(reason: EndReason, message: impl Into<String>) -> Over {
        Over { reason, message: message.into(), grace: Duration::ZERO, reply: None }
    }

    fn asked((terminate, reply): (Terminate, oneshot::Sender<ShimState>)) -> Over {
        let Terminate { reason, message, grace_ms } = terminate;
        Over { reason, message, grace: Duration::from_millis(grace_ms), reply: Some(reply) }
    }
}

struct Driver {
    state: watch::Sender<ShimState>,
    guest: watch::Sender<Option<Guest>>,
    requests: Requests,
    console: Console,
    has_start_command: bool,
}

/// Serves the sandbox whose folder is the current one, until it has ended.
pub(crate) async fn run() -> std::io::Result<()> {
    let (state, states) = watch::channel(machine::empty());
    let (guest, guests) = watch::channel(None);
    let (server, requests) = api::serve_stdin(states, guests)?;
    let driver = Driver { state, guest, requests, console: Console::default(), has_start_command: false };
    let reply = driver.live().await;
    // New connections are refused from here on; the answer to a terminate still has to get out.
    if let Some((reply, state)) = reply {
        let _ = reply.send(state);
    }
    server.finish().await;
    Ok(())
}

impl Driver {
    /// One life, from the wait for a boot to a written end.
    async fn live(mut self) -> Option<(oneshot::Sender<ShimState>, ShimState)> {
        let mut parts = Parts::default();
        let over = match self.wait_for_boot().await {
            Ok(boot) => match self.start(boot, &mut parts).await {
                Ok(channel) => self.run_machine(channel, &mut parts).await,
                Err(over) => over,
            },
            Err(over) => over,
        };
        self.end(over, parts).await
    }

    fn sender(&self) -> Option<GuestSender> {
        self.guest.borrow().as_ref().map(|guest| guest.sender.clone())
    }

    fn apply(&self, event: Event) {
        self.state.send_if_modified(|state| machine::apply(state, event));
    }

    async fn wait_for_boot(&mut self) -> Result<Boot, Over> {
        tokio::select! {
            biased;
            Some(terminate) = self.requests.terminate.recv() => Err(Over::asked(terminate)),
            Some((boot, reply)) = self.requests.boot.recv() => {
                self.apply(Event::Boot);
                self.apply(Event::Egress { generation: boot.egress.generation });
                let _ = reply.send(self.state.borrow().clone());
                self.has_start_command = boot.init.start_command.is_some();
                Ok(boot)
            }
            () = tokio::time::sleep(Duration::from_secs(limits::BOOT_WAIT_SECS)) => {
                Err(Over::by_itself(EndReason::StartFailed, "the node never asked the shim to boot"))
            }
        }
    }

    async fn start(&mut self, mut boot: Boot, parts: &mut Parts) -> Result<Channel, Over> {
        let state = &self.state;
        let spawned = |pid| {
            state.send_if_modified(|s| machine::apply(s, Event::Spawned { pid }));
        };
        let started = tokio::select! {
            biased;
            Some(terminate) = self.requests.terminate.recv() => return Err(Over::asked(terminate)),
            started = start(&mut boot, parts, &self.console, spawned) => started,
        };
        match started {
            Ok(Started { channel, exchange, steps_ms }) => {
                tracing::info!(?steps_ms, "running");
                self.guest.send_replace(Some(Guest { sender: channel.sender.clone(), exchange }));
                self.apply(Event::Started { now_ms: now_ms(), steps_ms });
                Ok(channel)
            }
            Err(StartError::Init(AskError::Failed { code, message, .. })) if code == IMAGE_UNUSABLE => {
                Err(Over::by_itself(EndReason::ImageUnusable, message))
            }
            Err(StartError::Init(AskError::Failed { code, message, .. })) if code == VOLUME_UNUSABLE => {
                Err(Over::by_itself(EndReason::VolumeUnusable, message))
            }
            Err(error) => {
                let console = self.console.tail(CONSOLE_LINES);
                let message = format!("the machine did not start: {error}\n{console}");
                Err(Over::by_itself(EndReason::StartFailed, message.trim_end()))
            }
        }
    }

    /// Keeps the machine until something ends it. A lost guest channel is opened again.
    async fn run_machine(&mut self, mut channel: Channel, parts: &mut Parts) -> Over {
        let Parts { vm: Some(vm), network } = parts else {
            return Over::by_itself(EndReason::StartFailed, "the machine is missing after its start");
        };
        let mut open = true;
        let mut off = Box::pin(power_off(self.sender().filter(|_| self.has_start_command)));
        loop {
            // Order: a terminate beats all; then what the VMM says, its death included; then the rest.
            tokio::select! {
                biased;
                Some(terminate) = self.requests.terminate.recv() => return Over::asked(terminate),
                event = vm.next_event() => match event {
                    Some(event) if event.name == "SHUTDOWN" => return self.guest_ended(event.data["reason"].as_str()),
                    Some(_) => {}
                    // The machine protocol closes with QEMU. One that closed it and lives on is of no use.
                    None => return self.vmm_died(tokio::time::timeout(VMM_DEATH_WAIT, vm.wait()).await),
                },
                Some((egress, reply)) = self.requests.egress.recv() => {
                    if let Some(network) = network {
                        network.set_policy(egress.policy, egress.generation);
                    }
                    self.apply(Event::Egress { generation: egress.generation });
                    let _ = reply.send(self.state.borrow().clone());
                }
                Some((asked, reply)) = self.requests.snapshot.recv() => {
                    let guest = self.guest.borrow().clone();
                    let _ = reply.send(snapshot::take(vm, network.as_ref(), guest, asked).await);
                }
                Some(reply) = self.requests.go_on.recv() => {
                    if let Some(sender) = self.sender() {
                        snapshot::go_on(vm, &sender).await;
                    }
                    let _ = reply.send(self.state.borrow().clone());
                }
                Some(reply) = self.requests.refresh.recv() => self.refresh(reply),
                Some((asked, reply)) = self.requests.layer.recv() => {
                    if let Err(over) = self.layer(vm, &asked.disk, reply).await {
                        return over;
                    }
                }
                Some((kills, last)) = self.requests.oom.recv() => self.apply(Event::OutOfMemory { kills, last }),
                () = &mut off => {
                    return Over::by_itself(EndReason::PoweredOff, "the sandbox's init switched the machine off");
                }
                _ = &mut channel.closed, if open => {
                    let exchange = self.guest.send_replace(None).and_then(|guest| guest.exchange);
                    tracing::warn!("guest channel lost, opening it again");
                    open = false;
                    let reopened = match vm.connect_guest().await {
                        Ok(stream) => channel::open(stream, REOPEN_WAIT).await.ok(),
                        Err(_) => None,
                    };
                    if let Some(again) = reopened {
                        self.guest.send_replace(Some(Guest { sender: again.sender.clone(), exchange }));
                        // Programs that stand still since a snapshot whose channel broke.
                        snapshot::resume(&again.sender).await;
                        off.set(power_off(self.sender().filter(|_| self.has_start_command)));
                        channel = again;
                        open = true;
                    }
                }
            }
        }
    }

    /// Freezes a disk as it is now. A terminate does not wait for the guest.
    async fn layer(&mut self, vm: &mut Vm, disk: &str, reply: LayerReply) -> Result<(), Over> {
        let Some(guest) = self.sender() else {
            let _ = reply.send(Err("the guest takes no requests now".to_owned()));
            return Ok(());
        };
        let rested = tokio::select! {
            biased;
            Some(terminate) = self.requests.terminate.recv() => return Err(Over::asked(terminate)),
            rested = layer::rest(guest.clone(), disk) => rested,
        };
        let layers = match rested {
            Ok(since) => layer::freeze(vm, guest, disk, since).await,
            Err(error) => Err(format!("bring the guest's file system to rest: {error}")),
        };
        // Whoever asked may have gone; the layer is there all the same.
        let _ = reply.send(layers);
        Ok(())
    }

    /// Asks the guest how it is, in a task of its own, and answers with the state after that.
    fn refresh(&self, reply: oneshot::Sender<ShimState>) {
        let Some(sender) = self.sender() else {
            let _ = reply.send(self.state.borrow().clone());
            return;
        };
        let (states, oom) = (self.state.subscribe(), self.requests.oom_sender.clone());
        tokio::spawn(async move {
            let mut states = states;
            if let Some(status) = status(sender).await
                && status.oom_kills > states.borrow_and_update().oom_kills
            {
                let last = status.last_oom.map(|o| format!("{} (pid {}) was killed for lack of memory", o.name, o.pid));
                if oom.send((status.oom_kills, last)).await.is_ok() {
                    let _ = tokio::time::timeout(guest::LAST_STATUS_WAIT, states.changed()).await;
                }
            }
            let state = states.borrow().clone();
            let _ = reply.send(state);
        });
    }

    fn vmm_died(&self, status: Result<std::io::Result<std::process::ExitStatus>, tokio::time::error::Elapsed>) -> Over {
        let how = match status {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it closed its control socket".to_owned(),
        };
        let console = self.console.tail(CONSOLE_LINES);
        let message = format!("the VMM died ({how})\n{console}");
        Over::by_itself(EndReason::VmmDied, message.trim_end())
    }

    /// The guest's kernel stopped: by its own wish or by a panic. `how`, QEMU's word for it, and the console tell which.
    fn guest_ended(&self, how: Option<&str>) -> Over {
        let console = self.console.tail(CONSOLE_LINES);
        let out_of_memory = console.contains("Out of memory") || console.contains("System is deadlocked on memory");
        let (reason, what) = if how == Some("guest-shutdown") {
            (EndReason::PoweredOff, "the guest switched its machine off")
        } else if console.contains("reboot: Restarting system") {
            (EndReason::PoweredOff, "the guest restarted its machine, which ends a sandbox")
        } else if out_of_memory {
            (EndReason::OutOfMemory, "the guest ran out of memory and stopped")
        } else {
            (EndReason::GuestDied, "the guest stopped")
        };
        Over::by_itself(reason, format!("{what}\n{console}").trim_end())
    }

    /// Ends what is left, writes how it ended, and says so.
    async fn end(self, over: Over, mut parts: Parts) -> Option<(oneshot::Sender<ShimState>, ShimState)> {
        let status = self.last_words(over.grace).await;
        self.guest.send_replace(None);
        if let Some(vm) = &mut parts.vm {
            vm.kill().await;
        }
        let end = End {
            reason: over.reason,
            message: over.message,
            at_ms: now_ms(),
            exit_code: status.start_command_exit,
            logs: status.logs,
        };
        if let Err(error) = write_end(&end) {
            tracing::error!(%error, "write {END_FILE}");
        }
        self.apply(Event::Ended(end));
        let state = self.state.borrow().clone();
        over.reply.map(|reply| (reply, state))
    }

    /// Lets the start command end in order and fetches its output. Quick where there is none.
    async fn last_words(&self, grace: Duration) -> GuestStatus {
        let Some(sender) = self.sender().filter(|_| self.has_start_command) else { return GuestStatus::default() };
        if !grace.is_zero() {
            let body = Shutdown { grace_ms: grace.as_millis() as u64 };
            let wait = grace + SHUTDOWN_SLACK;
            let done =
                guest::ask::<serde_json::Value>(sender.clone(), Method::POST, paths::SHUTDOWN, Some(&body), wait).await;
            if let Err(error) = done {
                tracing::warn!(%error, "the guest did not shut down in order");
            }
        }
        status(sender).await.unwrap_or_default()
    }
}

/// Whole or not at all: a reader never sees half of it.
fn write_end(end: &End) -> std::io::Result<()> {
    let draft = format!("{END_FILE}.draft");
    let mut file = std::fs::File::create(&draft)?;
    file.write_all(&serde_json::to_vec(end)?)?;
    file.sync_all()?;
    std::fs::rename(draft, END_FILE)
}
