//! What the host and the guest agent say to each other, beside the Connect service of the public contract.
//!
//! The guest is hostile: everything that comes from it is bounded by the limits here and validated before use.

pub mod command_session;
mod disk;
pub mod exchange;

pub use disk::{Mount, ROOT_DISK, RestDisk, VOLUME_UNUSABLE, is_volume_disk, volume_disk};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bounds of the guest protocol, each with its unit.
pub mod limits {
    /// Bytes of the nonce that opens a connection on the guest channel: [`NONCE_MAGIC`], then random ones. The agent
    /// echoes exactly these bytes; both sides drop everything before them.
    pub const NONCE_LEN: usize = 16;
    /// The nonce's first bytes, by which the agent finds it among what an earlier connection left in the channel.
    pub const NONCE_MAGIC: [u8; 4] = *b"WRN1";
    /// Largest JSON body in either direction, bytes.
    pub const JSON_LEN_MAX: usize = 4 << 20;
    /// HTTP/2: most streams at once on the channel.
    pub const STREAMS_MAX: u32 = 4096;
    /// HTTP/2: window of one stream on the host's side, bytes.
    pub const STREAM_WINDOW: u32 = 512 << 10;
    /// HTTP/2: window of the connection on the host's side, bytes. A stream whose client does not read holds its own window's
    /// worth of this one, so it must have room for more of those than anybody leaves unread: here 256. (The agent's windows are
    /// its own affair: it never leaves a body unread for long.)
    pub const CONNECTION_WINDOW: u32 = 128 << 20;
    /// HTTP/2: largest data frame, bytes.
    pub const FRAME_LEN_MAX: u32 = 256 << 10;
    /// One `read-file` answer, bytes of file content.
    pub const READ_FILE_LEN_MAX: u64 = 16 << 20;
    /// A frozen disk thaws by itself after this time, seconds.
    pub const FREEZE_SECS_MAX: u64 = 10;
    /// Jobs in one status call.
    pub const JOBS_MAX: usize = 100;
}

/// Paths that the agent serves beside the Connect service.
pub mod paths {
    /// `POST` [`super::Init`], answers [`super::InitDone`]; once per restore.
    pub const INIT: &str = "/warren/init";
    /// `POST`, answers `{}`: no code of the user runs from now on, and no other request is begun, until [`RESUME`] or [`INIT`].
    pub const SUSPEND: &str = "/warren/suspend";
    /// `POST`, answers `{}`: all goes on.
    pub const RESUME: &str = "/warren/resume";
    /// `GET`, answers [`super::GuestStatus`].
    pub const STATUS: &str = "/warren/status";
    /// `POST` [`super::JobsRequest`], answers [`super::JobsAnswer`].
    pub const JOBS: &str = "/warren/jobs";
    /// `POST` [`super::Shutdown`]: SIGTERM to the start command, a grace period, sync; answers `{}`.
    pub const SHUTDOWN: &str = "/warren/shutdown";
    /// `GET`, answers `{}` once the start command, an init, has switched the machine off; waits for that.
    pub const POWER_OFF: &str = "/warren/power-off";
    /// `POST` [`super::RestDisk`]: writes everything out to a disk and stops what would write more to it, until [`THAW_DISK`] or for
    /// [`super::limits::FREEZE_SECS_MAX`] at most; answers `{}`.
    pub const FREEZE_DISK: &str = "/warren/freeze-disk";
    /// `POST` `{}`: ends that, whichever it is; answers `{}`.
    pub const THAW_DISK: &str = "/warren/thaw-disk";
    /// `PUT ?path=`: the body becomes the file; answers [`super::FileWritten`].
    pub const FILES: &str = "/files";
    /// `GET ?path=`: the file's bytes.
    pub const DOWNLOAD: &str = "/download";
    /// `GET ?path=[&offset=][&length=]`, answers [`super::ReadFile`].
    pub const READ_FILE: &str = "/read-file";
    /// Prefix of the Connect service of the public contract.
    pub const COMMAND_SESSION: &str = "/command_session.CommandSession/";
}

/// Makes a restored guest its own machine. Sent before any user code runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Init {
    /// The sandbox's id.
    pub sandbox_id: String,
    /// Host name, without dots.
    pub hostname: String,
    /// Wall clock of the host, nanoseconds since 1970.
    pub now_unix_nanos: u64,
    /// Fresh entropy, base64, at least 32 bytes.
    pub entropy: String,
    /// 32 hex digits for `/etc/machine-id`.
    pub machine_id: String,
    /// Environment of every command: the image's, then the sandbox's, then its secrets.
    pub env: BTreeMap<String, String>,
    /// The image's working directory; made if missing. `None`: `/`.
    pub workdir: Option<String>,
    /// The image's user, as in `USER`: `name`, `uid`, `name:group`, `uid:gid`. `None`: root.
    pub user: Option<String>,
    /// Argv that is started once the root is mounted; its output goes to the sandbox's logs.
    pub start_command: Option<Vec<String>>,
    /// The guest's address on its link.
    pub network: Option<GuestNetwork>,
    /// Volumes, one a volume disk of the machine.
    #[serde(default)]
    pub mounts: Vec<Mount>,
}

/// Static configuration of the guest's one network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestNetwork {
    /// Address with prefix length, such as `10.0.2.15/24`.
    pub address: String,
    /// Gateway.
    pub gateway: String,
    /// Name server.
    pub dns: String,
    /// MTU, bytes.
    pub mtu: u32,
}

/// The guest is ready for commands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InitDone {
    /// Milliseconds of each step, for measurements.
    pub steps_ms: BTreeMap<String, f64>,
    /// Whether the agent takes and gives files through the [`exchange`] disk.
    #[serde(default)]
    pub has_exchange: bool,
}

/// Code of a [`GuestError`] that answers an [`Init`]: the image lacks what its config names.
pub const IMAGE_UNUSABLE: &str = "image_unusable";

/// Code of a [`GuestError`] that answers [`paths::SUSPEND`]: programs still stand still after a restore; it is to be asked again soon.
pub const NOT_YET: &str = "not_yet";

/// A refusal or failure of the agent, with an HTTP status of 4xx or 5xx.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GuestError {
    /// Stable code, such as `no_such_file`, `is_a_directory`, `permission_denied`, `no_space`, `too_large`, `bad_request`.
    pub code: String,
    /// What happened, to which object.
    pub message: String,
}

/// What the agent knows of the guest's health.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GuestStatus {
    /// Processes that the kernel killed for lack of memory since the start.
    pub oom_kills: u64,
    /// The last of them, as the kernel named it.
    pub last_oom: Option<OomKill>,
    /// The start command's exit code, once it ended (128+n by signal).
    pub start_command_exit: Option<i32>,
    /// Output of the start command, the last 1 MiB, decoded with replacement.
    pub logs: String,
    /// The agent's own resident memory, KiB.
    pub agent_rss_kib: u64,
}

/// One process that the kernel killed for lack of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomKill {
    /// Its pid in the guest.
    pub pid: u32,
    /// Its name, at most 16 bytes.
    pub name: String,
}

/// Asks for the state of background jobs (files of contract 3.9).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobsRequest {
    /// Job ids, 8 hex digits each, at most [`limits::JOBS_MAX`].
    pub job_ids: Vec<String>,
}

/// State of the jobs asked for, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobsAnswer {
    /// One entry a job.
    pub jobs: Vec<JobState>,
}

/// State of one background job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum JobState {
    /// No trace of such a job.
    NotFound,
    /// It runs, or has not written its status yet.
    Running,
    /// It ended.
    Completed {
        /// Exit code.
        exit_code: i32,
    },
    /// It died without leaving a status.
    Lost,
}

/// Ends the guest's work in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shutdown {
    /// Time between SIGTERM and SIGKILL for the start command, milliseconds.
    pub grace_ms: u64,
}

/// A file was written whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWritten {
    /// Its path as asked for.
    pub path: String,
    /// Bytes.
    pub size: u64,
}

/// A window of a file. The public API passes it on as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    /// Decoded with replacement.
    pub content: String,
    /// Bytes of the window.
    pub size: u64,
    /// Bytes of the whole file.
    pub total_size: u64,
    /// Where the window starts.
    pub offset: u64,
    /// Whether bytes before the window were left out.
    pub truncated: bool,
}
