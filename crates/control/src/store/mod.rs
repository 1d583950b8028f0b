//! What control keeps, and every query on it: one function a query.
//!
//! # What do we store?
//!
//! | table | why | load |
//! | --- | --- | --- |
//! | `users`, `api_keys`, `teams`, `team_members` | who may do what; one look-up by key hash per request | read-mostly |
//! | `sandboxes` | intent (what should run) and the last observation (what does); ended ones stay for `logs` and `error-context` | one insert and about four updates a life; one read per poll |
//! | `sandbox_labels` | filters of list and bulk delete | written once |
//! | `snapshots` | who may go on from which snapshot, and the intent to take or drop one | a few updates each |
//! | `app_templates` | what creates may go on from, and the intent to make, keep or drop it | rare |
//! | `secrets` | a person's or a team's own secrets, sealed | rare |
//! | `registry_credentials` | saved logins at image registries, passwords sealed | one look-up a create |
//! | `login_challenges` | a login between its begin and the client's fetching of the key, 10 minutes | rare |
//! | `images` | tags that people and teams own, each with the digest that it leads to | one look-up a create |
//! | `image_artifacts` | digests whose bytes the node is to keep | rare |
//! | `image_builds` | what makes tags lead somewhere, and the intent to finish it; 7 days after its end | a few updates a build |
//! | `checkpoints` | disks at one moment: the intent to make one durable or to let it go, and what it became; deleted ones 7 days | one insert and two updates each |
//! | `volumes` | disks that outlive sandboxes, each with the version that new sandboxes start from | one look-up a create that names one |
//! | `volume_attachments` | which sandbox has which volume, and on which version it lies | one insert a volume of a create |
//! | `idempotency_keys` | a repeated create answers the same sandbox, 24 hours long | one upsert a create |
//!
//! Not stored: what the node is the authority on (processes, sockets, image builds), and secrets in clear.
//!
//! # One SQL for two databases
//!
//! Queries are written so that PostgreSQL takes them as well: `$1` placeholders, `ON CONFLICT`, types TEXT, BIGINT and BOOLEAN,
//! no function that only one of the two has. Nothing relies on a lock that is held over several statements: a row carries a
//! `version`, and an update that meets another version is computed again. SQLite runs with one writing connection and a write-ahead log.

mod account;
mod app_template;
mod artifact;
mod attachment;
mod build;
mod build_begin;
mod checkpoint;
mod credential;
mod error;
#[cfg(test)]
pub(crate) mod fixture;
mod idempotency;
mod image;
mod image_change;
mod image_quota;
mod insert;
mod list;
mod login;
mod open;
mod publish;
mod purge;
mod row;
mod sandbox;
mod secret;
mod snapshot;
mod volume;

pub(crate) use account::{Membership, User};
pub(crate) use app_template::TemplateRow;
pub(crate) use build::{BuildRow, Moved};
pub(crate) use build_begin::{Begun, Terms};
pub(crate) use checkpoint::{CheckpointRow, CheckpointStage, NewCheckpoint, Taken};
pub(crate) use credential::CredentialRow;
pub(crate) use error::StoreError;
pub(crate) use image::ImageRow;
pub(crate) use image_change::ImageChanges;
pub(crate) use image_quota::{Full, ImageQuota};
pub(crate) use insert::{Inserted, NewSandbox};
pub(crate) use list::{Owner, Page, Selection};
pub(crate) use login::ChallengeRow;
pub(crate) use open::{Durability, Store};
pub(crate) use publish::{NewPublish, Publish};
pub(crate) use row::{Intent, Placement, SandboxRow};
pub(crate) use sandbox::Updated;
pub(crate) use secret::SecretRow;
pub(crate) use snapshot::{SnapshotRow, SnapshotsOf};
pub(crate) use volume::{VolumeDeleted, VolumeRow};
