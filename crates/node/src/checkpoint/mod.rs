//! Checkpoints of this node: a frozen disk becomes an image, which is kept by its name and goes to the object store if there is one.
//!
//! `folder` is what a restart finds; `begin` freezes the disk of a sandbox.

mod begin;
mod folder;

pub(crate) use begin::FrozenFrom;
use folder::{Folder, Record, Stage};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use warren_image::{Image, Store};
use warren_model::CheckpointId;
use warren_proto::node::{CheckpointMade, CheckpointState, ImageError, STATE_HOLD_SECS, checkpoint_image};

/// All checkpoints that this node made and was not told to let go.
pub(crate) struct Checkpoints {
    root: PathBuf,
    images: Store,
    known: Mutex<HashMap<CheckpointId, watch::Receiver<CheckpointState>>>,
}

impl Checkpoints {
    /// Opens the folder of all, made if need be.
    pub(crate) fn open(root: PathBuf, images: Store) -> std::io::Result<Arc<Self>> {
        std::fs::create_dir_all(&root)?;
        Ok(Arc::new(Self { root, images, known: Mutex::default() }))
    }

    /// Goes on where an earlier run was. Before images are collected: what is still needed is leased when this returns.
    pub(crate) fn resume(self: &Arc<Self>) -> std::io::Result<()> {
        for (folder, known) in Folder::all(&self.root)? {
            match known {
                Some((id, record)) => match record.stage.clone() {
                    // Nobody was told of it: there is nothing to keep.
                    Stage::Freezing => folder.remove(),
                    Stage::Durable { made } => drop(self.watch(&id, CheckpointState::Durable(made))),
                    Stage::Failed { problem } => drop(self.watch(&id, CheckpointState::Failed { problem })),
                    Stage::Frozen { .. } if record.boot != crate::host::boot_id() => {
                        let problem = "the host was restarted before its disk was safe".to_owned();
                        let failed = Record { stage: Stage::Failed { problem: problem.clone() }, ..record };
                        folder.write(&failed).and_then(|()| folder.drop_layers())?;
                        drop(self.watch(&id, CheckpointState::Failed { problem }));
                    }
                    Stage::Frozen { .. } => {
                        let base = self.images.lease(&record.base);
                        self.finish(id, folder, record, base);
                    }
                    Stage::Image { made } => {
                        let image = self.images.lease(&made.digest);
                        self.finish(id, folder, record, image);
                    }
                },
                None => folder.remove(),
            }
        }
        Ok(())
    }

    /// How far one is, held for a while if it is pending.
    pub(crate) async fn state(&self, id: &CheckpointId) -> Option<CheckpointState> {
        let mut states = self.known().get(id).cloned()?;
        let hold = Duration::from_secs(STATE_HOLD_SECS);
        let _ = tokio::time::timeout(hold, states.wait_for(|state| *state != CheckpointState::Pending)).await;
        let state = states.borrow().clone();
        Some(state)
    }

    /// Lets one go that is not pending.
    pub(crate) async fn remove(&self, id: &CheckpointId) -> Result<(), ImageError> {
        let Some(state) = self.known().get(id).map(|states| states.borrow().clone()) else { return Ok(()) };
        match state {
            CheckpointState::Pending => {
                let message = "it is still being made".to_owned();
                return Err(ImageError { reference: id.to_string(), code: "in_use", message });
            }
            CheckpointState::Durable(made) => self.unname(id, &made).await?,
            CheckpointState::Failed { .. } => {}
        }
        Folder::of(&self.root, id).remove();
        self.known().remove(id);
        Ok(())
    }

    async fn unname(&self, id: &CheckpointId, made: &CheckpointMade) -> Result<(), ImageError> {
        match self.images.remove(&checkpoint_image(id, &made.digest)).await {
            Ok(_) | Err(ImageError { code: "not_found", .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<CheckpointId, watch::Receiver<CheckpointState>>> {
        // No code panics while it holds the lock, and the map is whole at any time.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, id: &CheckpointId, state: CheckpointState) -> watch::Sender<CheckpointState> {
        let (tell, states) = watch::channel(state);
        self.known().insert(id.clone(), states);
        tell
    }

    /// Makes a frozen one durable in the background. `image` is what it is made from next: the image below, or its own.
    fn finish(self: &Arc<Self>, id: CheckpointId, folder: Folder, mut record: Record, image: Option<Image>) {
        let tell = self.watch(&id, CheckpointState::Pending);
        let checkpoints = self.clone();
        tokio::spawn(async move {
            let made = checkpoints.make(&id, &folder, &mut record, image).await;
            let state = match made {
                Ok(made) => {
                    tracing::info!(checkpoint = %id, digest = made.digest, "checkpoint is durable");
                    record.stage = Stage::Durable { made: made.clone() };
                    CheckpointState::Durable(made)
                }
                Err(problem) => {
                    tracing::error!(checkpoint = %id, sandbox = record.sandbox, problem, "checkpoint failed");
                    if let Stage::Image { made } = &record.stage
                        && let Err(error) = checkpoints.unname(&id, made).await
                    {
                        tracing::error!(checkpoint = %id, %error, "the image of a failed checkpoint is not let go");
                    }
                    record.stage = Stage::Failed { problem: problem.clone() };
                    CheckpointState::Failed { problem }
                }
            };
            // If this is lost, the next start does the last step again.
            if let Err(error) = folder.write(&record).and_then(|()| folder.drop_layers()) {
                tracing::error!(checkpoint = %id, %error, "write down how a checkpoint ended");
            }
            tell.send_replace(state);
        });
    }

    async fn make(
        &self,
        id: &CheckpointId,
        folder: &Folder,
        record: &mut Record,
        image: Option<Image>,
    ) -> Result<CheckpointMade, String> {
        let image = image.ok_or("the image that it lies on is not on this node any more")?;
        let (image, made) = match record.stage.clone() {
            Stage::Image { made } => (image, made),
            Stage::Frozen { layers } => {
                let files = folder.open_layers(layers).map_err(|e| format!("open the frozen disk: {e}"))?;
                let name = id.clone();
                let name = move |digest: &str| checkpoint_image(&name, digest);
                let layered = self.images.layered(&image, files, name).await.map_err(|e| e.to_string())?;
                let made = CheckpointMade {
                    digest: layered.image.record.digest.clone(),
                    disk_size_bytes: layered.image.disk.size(),
                    stored_bytes: layered.added_bytes,
                    occupied_bytes: layered.occupied_bytes,
                };
                record.stage = Stage::Image { made: made.clone() };
                let noted = folder.write(record).and_then(|()| folder.drop_layers());
                noted.map_err(|e| format!("write down that it is an image: {e}"))?;
                (layered.image, made)
            }
            other => return Err(format!("it is not to be made: {other:?}")),
        };
        self.images.until_stored(&image).await.map_err(|e| e.to_string())?;
        Ok(made)
    }
}

#[cfg(test)]
mod tests;
