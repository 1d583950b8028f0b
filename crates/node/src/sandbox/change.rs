//! What is done to a sandbox between its start and its end: snapshots, resets, pauses.

use super::Event;
use super::driver::{Done, Driver, Over};
use super::folder::Turn;
use crate::host::{boot_id, now_ms, random};
use crate::shim_client::{ShimClient, ShimClientError};
use crate::snapshots::{Record, TakenFrom};
use crate::template::Devices;
use hyper::Method;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use warren_model::{CheckpointId, EndReason, Shape, SnapshotId};
use warren_proto::node::{NodeError, SnapshotError, SnapshotInfo};
use warren_proto::shim::{ShimState, SnapshotTaken, TakeSnapshot, paths};

/// Longest time for a shim to take a snapshot: gigabytes of changed memory go to the disk.
const SNAPSHOT_WAIT: Duration = Duration::from_secs(300);

/// Somebody wants something done.
pub(crate) enum Order {
    /// A snapshot; the machine goes on.
    Snapshot(SnapshotId, oneshot::Sender<Result<SnapshotInfo, SnapshotError>>),
    /// Its root disk as it is now, or the volume of that place, as a checkpoint; the machine goes on.
    Checkpoint(CheckpointId, Option<usize>, oneshot::Sender<Result<(), NodeError>>),
    /// Back to a snapshot of its own.
    Reset(SnapshotId, Done),
    /// A snapshot, and the end of the machine.
    Pause(SnapshotId, Done),
    /// On from where it was paused.
    Resume(Done),
}

impl Driver {
    /// Does what is asked of a running sandbox. What its machine is to do next, if it is not to run on.
    pub(super) async fn obey(&mut self, client: &ShimClient, order: Order) -> Result<Option<(Turn, Done)>, Over> {
        match order {
            Order::Snapshot(id, reply) => {
                let taken = self.snapshot(client, &id, false).await?;
                let _ = reply.send(taken.and_then(|record| record.info().ok_or(SnapshotError::NoSnapshot(id))));
            }
            Order::Checkpoint(id, volume, reply) => self.checkpoint(client, id, volume, reply).await?,
            Order::Reset(id, done) => match self.own_snapshot(&id) {
                Ok(()) => return Ok(Some((Turn::Resetting(id), done))),
                Err(error) => drop(done.send(Err(error))),
            },
            Order::Pause(id, done) => match self.snapshot(client, &id, true).await? {
                Ok(_) => return Ok(Some((Turn::Paused(id), done))),
                Err(error) => drop(done.send(Err(error))),
            },
            Order::Resume(done) => drop(done.send(Ok(()))),
        }
        Ok(None)
    }

    /// Does what is asked of a paused sandbox.
    pub(super) fn obey_at_rest(&mut self, order: Order) -> Option<(Turn, Done)> {
        match order {
            Order::Snapshot(_, reply) => drop(reply.send(Err(self.conflict("it must run; resume it first")))),
            Order::Checkpoint(_, _, reply) => {
                let status = self.handle.observation().status;
                drop(reply.send(Err(NodeError::NotRunning { id: self.id.clone(), status })));
            }
            Order::Pause(_, done) => drop(done.send(Err(self.conflict("it is paused already")))),
            Order::Reset(id, done) => match self.own_snapshot(&id) {
                Ok(()) => return Some((Turn::Resetting(id), done)),
                Err(error) => drop(done.send(Err(error))),
            },
            Order::Resume(done) => match self.intent.turn.snapshot().cloned() {
                Some(id) => return Some((Turn::Resuming(id), done)),
                None => drop(done.send(Err(self.conflict("there is no snapshot to go on from")))),
            },
        }
        None
    }

    /// Pauses without being asked, unless that cannot be, or somebody came meanwhile: then its idle time begins anew.
    pub(super) async fn pause_by_itself(&mut self, client: &ShimClient) -> Result<Option<Turn>, Over> {
        let problem = match random::<16>() {
            Ok(bits) => {
                let id = SnapshotId::from_bits(u128::from_le_bytes(bits));
                match self.snapshot(client, &id, true).await? {
                    Ok(_) if self.handle.activity.now().0 == 0 => return Ok(Some(Turn::Paused(id))),
                    Ok(_) => {
                        self.let_go_on(client).await;
                        self.services.snapshots.delete(&id).err().map(|error| error.to_string())
                    }
                    Err(error) => Some(error.to_string()),
                }
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            tracing::warn!(sandbox = %self.id, problem, "an idle sandbox was not paused; tried again after its idle time");
        }
        drop(self.handle.activity.begin());
        Ok(None)
    }

    /// Lets a machine run on that stays as it was for a snapshot.
    async fn let_go_on(&self, client: &ShimClient) {
        let asked = client.call::<ShimState>(Method::POST, paths::GO_ON, None::<&()>, SNAPSHOT_WAIT).await;
        if let Err(error) = asked {
            tracing::error!(sandbox = %self.id, %error, "a machine does not go on after a snapshot");
        }
    }

    fn conflict(&self, problem: &str) -> SnapshotError {
        SnapshotError::Conflict {
            id: self.id.clone(),
            status: self.handle.observation().status,
            problem: problem.to_owned(),
        }
    }

    fn own_snapshot(&self, id: &SnapshotId) -> Result<(), SnapshotError> {
        let record = self.services.snapshots.get(id).ok_or_else(|| SnapshotError::NoSnapshot(id.clone()))?;
        if record.sandbox == self.id.as_str() {
            self.fits(record.shape, &record.template)
                .map_err(|problem| SnapshotError::Incompatible { id: id.clone(), problem })
        } else {
            Err(self.conflict(&format!("snapshot {id} is one of sandbox {}; fork it to go on from it", record.sandbox)))
        }
    }

    /// Whether a machine of this node can go on from memory on this base template.
    fn fits(&self, shape: Shape, template: &str) -> Result<(), String> {
        match self.services.templates.has(Devices::of(shape), template) {
            true => Ok(()),
            false => Err("it was started with another version of QEMU, kernel, agent or processor".to_owned()),
        }
    }

    /// Takes a snapshot of the running machine, which is to `stay` as it is then, or goes on. An outer error ends the sandbox.
    async fn snapshot(
        &mut self,
        client: &ShimClient,
        id: &SnapshotId,
        stay: bool,
    ) -> Result<Result<Record, SnapshotError>, Over> {
        if let Some(record) = self.services.snapshots.get(id) {
            return Ok(Ok(record));
        }
        if !self.intent.volumes.is_empty() {
            return Ok(Err(self.conflict("it has volumes, and snapshots hold no volumes; publish them instead")));
        }
        // Nothing could go on from it.
        if let Some(Err(problem)) = self.intent.template.as_ref().map(|template| self.fits(self.intent.shape, template))
        {
            return Ok(Err(SnapshotError::Incompatible { id: id.clone(), problem }));
        }
        let snapshots = self.services.snapshots.clone();
        if let Err(error) = snapshots.begin(id) {
            return Ok(Err(SnapshotError::Failed(format!("make the folder of snapshot {id}: {error}"))));
        }
        let asked = TakeSnapshot { stay };
        let call = client.call::<SnapshotTaken>(Method::POST, paths::SNAPSHOT, Some(&asked), SNAPSHOT_WAIT);
        let taken = self.unless_terminated(call).await;
        let completed = match taken {
            Ok(Ok(taken)) => self.complete(id, taken),
            Ok(Err(ShimClientError::Refused { message, .. })) => Err(SnapshotError::Failed(message)),
            Ok(Err(error)) => Err(SnapshotError::Failed(error.to_string())),
            Err(over) => {
                snapshots.abandon(id);
                return Err(over);
            }
        };
        if completed.is_err() {
            snapshots.abandon(id);
            if stay {
                self.let_go_on(client).await;
            }
        }
        Ok(completed)
    }

    /// Takes over what the shim has left, and lies on it from now on.
    fn complete(&mut self, id: &SnapshotId, taken: SnapshotTaken) -> Result<Record, SnapshotError> {
        let snapshots = self.services.snapshots.clone();
        let failed = |e: &dyn std::fmt::Display| SnapshotError::Failed(format!("keep snapshot {id}: {e}"));
        let (Some(image_digest), Some(template)) = (self.intent.image_digest.clone(), self.intent.template.clone())
        else {
            return Err(failed(&"it is not known what the sandbox started from; its node was upgraded meanwhile"));
        };
        let record = Record {
            id: id.clone(),
            sandbox: self.id.to_string(),
            image_digest,
            shape: self.intent.shape,
            disk_bytes: self.intent.disk_bytes,
            created_at_ms: now_ms(),
            paused_ms: taken.paused_ms,
            template,
            memory_on: self.intent.memory_on.clone(),
            disk_on: self.intent.disk_on.clone(),
            layers: 0,
            lent: Vec::new(),
            flows: Default::default(),
            has_start_command: self.intent.has_start_command,
            stored_bytes: 0,
            boot: boot_id(),
            digest: None,
            delta_sum: None,
            flat_sum: None,
            offered: None,
            deleted: false,
        };
        let layers = taken.layers.len();
        let from = TakenFrom { vm: &self.folder.vm(), layers_had: self.intent.layers_had };
        snapshots.complete(record, &from, &taken).map_err(|e| failed(&e))?;
        // A crash before the intent is written makes the next snapshot hold this one's layers a second time, and no harm.
        self.needs.extend(snapshots.lease(id));
        self.intent.disk_on = Some(id.clone());
        self.intent.layers_had = layers;
        self.folder.write_intent(&self.intent).map_err(|e| failed(&e))?;
        snapshots.get(id).ok_or_else(|| SnapshotError::NoSnapshot(id.clone()))
    }

    /// Ends the machine that there is, and starts the next one if the sandbox is not to rest.
    pub(super) async fn turn(
        &mut self,
        turn: Turn,
        done: Option<Done>,
    ) -> Result<Option<(ShimClient, ShimState)>, Over> {
        let failed = |what: &str, e: &dyn std::fmt::Display| Over::new(EndReason::NodeLost, format!("{what}: {e}"));
        let Some(id) = turn.snapshot().cloned() else {
            return Err(failed("go on", &"there is nothing to go on from"));
        };
        self.intent.started_at_ms = self.intent.started_at_ms.or(self.handle.observation().started_at_ms);
        // A resume that is cut off finds the sandbox paused.
        self.intent.turn = match turn.clone() {
            Turn::Resuming(id) => Turn::Paused(id),
            other => other,
        };
        self.folder.write_intent(&self.intent).map_err(|e| failed("write the intent", &e))?;
        self.end_machine().await;
        self.folder.renew_vm().map_err(|e| failed("empty the machine's folder", &e))?;
        let lease = self.services.snapshots.lease(&id);
        let lease = lease.ok_or_else(|| failed("go on", &SnapshotError::NoSnapshot(id.clone())))?;
        if let Turn::Paused(id) = &turn {
            self.needs = vec![lease];
            self.handle.memory_mib.store(0, Ordering::SeqCst);
            // It is this sandbox's alone.
            self.services.snapshots.delete(id).map_err(|e| failed("hide the snapshot", &e))?;
            self.tell(Event::Paused { started_at_ms: self.intent.started_at_ms });
            done.map(|done| done.send(Ok(())));
            return Ok(None);
        }
        self.handle.memory_mib.store(self.intent.shape.memory_mib, Ordering::SeqCst);
        let (client, state) = match self.start_again(lease).await {
            Ok(started) => started,
            // It is paused as before, and may be tried again.
            Err(over) if matches!(turn, Turn::Resuming(_)) && over.is_fault() => {
                self.end_machine().await;
                self.handle.memory_mib.store(0, Ordering::SeqCst);
                done.map(|done| done.send(Err(SnapshotError::Failed(over.to_string()))));
                return Ok(None);
            }
            Err(over) => return Err(over),
        };
        self.intent.turn = Turn::Running;
        if matches!(turn, Turn::Resetting(_)) {
            self.intent.generation += 1;
        }
        self.folder.write_intent(&self.intent).map_err(|e| failed("write the intent", &e))?;
        self.tell(Event::Resumed { generation: self.intent.generation, started_at_ms: self.intent.started_at_ms });
        self.tell(Event::Shim(state.clone()));
        // Its idle time begins anew.
        drop(self.handle.activity.begin());
        done.map(|done| done.send(Ok(())));
        Ok(Some((client, state)))
    }
}
