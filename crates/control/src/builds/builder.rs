//! The sandboxes in which Dockerfiles are built: ordinary ones, of a user that nobody is.
//!
//! A builder stays for a while after a build, with Docker's layer cache, for the next build of the same owner and nobody else's. The
//! node ends it when it was idle long enough; a restart of the server ends all, since what they were doing is not known any more.

use super::fault::Fault;
use crate::clock::now_ms;
use crate::context::Context;
use crate::images::Owner;
use crate::quota::Quota;
use crate::random;
use crate::reconcile::{deleted, dispatch};
use crate::store::{Durability, NewSandbox, Owner as Scope, Page, SandboxRow, Selection, StoreError};
use crate::templates;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use warren_model::{SandboxId, SandboxSpec, Status};
use warren_proto::http::{CreateSandbox, StartCommand};

/// Owner of all builders, made by a migration.
pub(crate) const BUILDER_USER_ID: &str = "ubuilder";
/// Name under which an administrator imports the image with Docker.
pub(crate) const BUILDER_IMAGE: &str = "prime/_server/builder:1";
/// What is started in it; where its log is, the build's script knows.
const DAEMON: &str = "exec dockerd >/var/log/dockerd.log 2>&1";
/// Exits with 0 once that answers.
const READY: [&str; 2] = ["/usr/bin/docker", "version"];
/// Size of a builder.
const VCPUS: f64 = 2.0;
const MEMORY_GB: f64 = 2.0;
const DISK_GB: f64 = 20.0;
/// Builders that wait for the next build of their owners.
const IDLE_MAX: usize = 4;
/// Longest wait for one to run, seconds; a full node lets it wait.
const READY_SECS_MAX: u64 = 600;
/// Builders that one look at the store finds.
const PAGE: Page = Page { offset: 0, limit: 1000 };

/// Builders that wait for the next build, the longest waiting first.
#[derive(Default)]
pub(super) struct Builders {
    idle: Mutex<Vec<(Owner, SandboxId)>>,
}

impl Builders {
    fn idle(&self) -> MutexGuard<'_, Vec<(Owner, SandboxId)>> {
        // No code panics while it holds the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, owner: &Owner) -> Option<SandboxId> {
        let mut idle = self.idle();
        let at = idle.iter().rposition(|(of, _)| of == owner)?;
        Some(idle.remove(at).1)
    }

    /// All that wait for an owner.
    pub(super) fn take_all(&self, owner: &Owner) -> Vec<SandboxId> {
        std::iter::from_fn(|| self.take(owner)).collect()
    }

    /// Puts one in; answers those that have no place any more.
    fn put(&self, owner: &Owner, id: SandboxId) -> Vec<SandboxId> {
        let mut surplus = self.take_all(owner);
        let mut idle = self.idle();
        idle.push((owner.clone(), id));
        let over = idle.len().saturating_sub(IDLE_MAX);
        surplus.extend(idle.drain(..over).map(|(_, id)| id));
        surplus
    }
}

/// Whether the node has the image that builders boot.
pub(crate) async fn has_image(cx: &Context) -> bool {
    cx.node.images().await.is_ok_and(|images| images.iter().any(|image| image.reference == BUILDER_IMAGE))
}

/// A builder for one build of an owner: one with his layer cache if one waits, else a new one. Whether it is new.
pub(super) async fn claim(cx: &Context, owner: &Owner) -> Result<(SandboxId, bool), Fault> {
    while let Some(id) = cx.builds.builders.take(owner) {
        if cx.store.sandbox_get(&id).await?.is_some_and(|row| row.is_live()) {
            return Ok((id, false));
        }
    }
    Ok((make(cx).await?, true))
}

async fn make(cx: &Context) -> Result<SandboxId, Fault> {
    if !has_image(cx).await {
        return Err(Fault::new("builder_missing", missing()));
    }
    let internal = |error: &dyn std::fmt::Display| Fault::new("internal", error.to_string());
    let start_command =
        StartCommand { executable: "/bin/bash".to_owned(), args: vec!["-c".to_owned(), DAEMON.to_owned()] };
    let request = CreateSandbox {
        name: "image-builder".to_owned(),
        start_command: Some(start_command),
        docker_image: Some(BUILDER_IMAGE.to_owned()),
        cpu_cores: VCPUS,
        memory_gb: MEMORY_GB,
        disk_size_gb: Some(DISK_GB),
        timeout_minutes: -1,
        idle_timeout_minutes: Some(cx.config.builder_idle_minutes),
        ..CreateSandbox::default()
    };
    let ready = READY.map(str::to_owned).to_vec();
    templates::ensure(cx, BUILDER_USER_ID, &request, ready).await?;
    let spec = SandboxSpec::try_from(&request).map_err(|e| internal(&e))?;
    let id = SandboxId::from_bits(random::bits().map_err(|e| internal(&e))?);
    let row = SandboxRow::asked(id, BUILDER_USER_ID.to_owned(), None, request, spec.egress, now_ms());
    let (key_hash, quota) = (String::new(), Quota::default());
    let new = NewSandbox { row, idempotency: None, key_hash, vcpus: spec.shape.vcpus, quota };
    cx.store.sandbox_insert(&new).await?;
    let _begun = cx.underway.begin(&new.row.id);
    // A full node takes it later: it is in the queue with all others.
    dispatch::create(cx, &new.row).await?;
    Ok(new.row.id)
}

/// What to do where the image is missing.
pub(crate) fn missing() -> String {
    format!(
        "this server has no image to build Dockerfiles in; its administrator makes one with `scripts/builder-image.sh FILE.tar` \
         and `warren images import FILE.tar --name {BUILDER_IMAGE}`"
    )
}

/// Waits until it runs.
pub(super) async fn ready(cx: &Context, id: &SandboxId) -> Result<(), Fault> {
    let deadline = Instant::now() + Duration::from_secs(READY_SECS_MAX);
    let waiter = cx.changes.listen(vec![id.clone()]);
    loop {
        let row = cx.store.sandbox_get(id).await?;
        match row {
            Some(row) if row.status == Status::Running => return Ok(()),
            Some(row) if row.is_live() => {}
            ended => {
                let why = ended.and_then(|row| row.error_message.or(row.termination_reason)).unwrap_or_default();
                return Err(Fault::new("builder_lost", format!("the sandbox to build in did not start: {why}")));
            }
        }
        if !waiter.changed(deadline).await {
            return Err(Fault::new("builder_lost", format!("no sandbox to build in within {READY_SECS_MAX} s")));
        }
    }
}

/// Whether it still runs.
pub(super) async fn is_live(cx: &Context, id: &SandboxId) -> Result<bool, StoreError> {
    Ok(cx.store.sandbox_get(id).await?.is_some_and(|row| row.is_live()))
}

/// Keeps it for the owner's next build.
pub(super) async fn give_back(cx: &Context, owner: &Owner, id: SandboxId) -> Result<(), StoreError> {
    for surplus in cx.builds.builders.put(owner, id) {
        end(cx, &surplus).await?;
    }
    Ok(())
}

/// Ends it. The intent is durable before; what fails on the node is repeated by the reconciler.
pub(super) async fn end(cx: &Context, id: &SandboxId) -> Result<(), StoreError> {
    let now = now_ms();
    cx.store.sandbox_update(id, Durability::Power, now, |row| deleted(row, now)).await?;
    cx.changes.tell(id);
    let _begun = cx.underway.begin(id);
    dispatch::terminate(cx, id).await
}

/// Ends those that an earlier run of the server left.
pub(super) async fn end_all(cx: &Context) -> Result<(), StoreError> {
    let selection = Selection {
        owner: Scope::Personal,
        user_id: Some(BUILDER_USER_ID.to_owned()),
        active_only: true,
        ..Selection::default()
    };
    let (rows, _) = cx.store.sandboxes_list(&selection, PAGE).await?;
    for row in rows {
        end(cx, &row.id).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_gets_his_own_back_and_few_wait() {
        let builders = Builders::default();
        let owner = |n: u128| Owner::User(format!("u{n}"));
        for n in 0..IDLE_MAX as u128 {
            assert!(builders.put(&owner(n), SandboxId::from_bits(n)).is_empty());
        }
        assert_eq!(builders.put(&owner(0), SandboxId::from_bits(100)), [SandboxId::from_bits(0)], "one of an owner");
        assert_eq!(builders.put(&owner(9), SandboxId::from_bits(9)), [SandboxId::from_bits(1)], "the longest waiting");
        assert_eq!(builders.take(&owner(0)), Some(SandboxId::from_bits(100)));
        assert_eq!(builders.take(&owner(0)), None);
        assert_eq!(builders.take_all(&owner(9)), [SandboxId::from_bits(9)]);
    }
}
