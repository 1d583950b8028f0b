/// What a sandbox is doing, in the seven words of the public API.
///
/// ```text
/// PENDING ──► PROVISIONING ──► RUNNING ◄──► PAUSED
///    │             │              │            │
///    └─────────────┴──────┬───────┴────────────┘
///                         ▼
///            ERROR | TERMINATED | TIMEOUT      (terminal)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Accepted; waits for its image or for room.
    Pending,
    /// Its machine is being started.
    Provisioning,
    /// It takes commands.
    Running,
    /// It is kept without using CPU or memory.
    Paused,
    /// It ended by a fault.
    Error,
    /// It ended because somebody asked, or because it was idle.
    Terminated,
    /// Its lifetime was over.
    Timeout,
}

impl Status {
    /// All words, in the order of a life.
    pub const ALL: [Status; 7] = [
        Status::Pending,
        Status::Provisioning,
        Status::Running,
        Status::Paused,
        Status::Error,
        Status::Terminated,
        Status::Timeout,
    ];

    /// The word of the public API.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Provisioning => "PROVISIONING",
            Status::Running => "RUNNING",
            Status::Paused => "PAUSED",
            Status::Error => "ERROR",
            Status::Terminated => "TERMINATED",
            Status::Timeout => "TIMEOUT",
        }
    }

    /// Reads the word of the public API.
    pub fn parse(word: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|s| s.as_str() == word)
    }

    /// Whether nothing can follow.
    pub fn is_terminal(self) -> bool {
        matches!(self, Status::Error | Status::Terminated | Status::Timeout)
    }

    /// Whether a sandbox that is in `self` may be seen in `next` afterwards.
    pub fn may_become(self, next: Status) -> bool {
        use Status::*;
        match (self, next) {
            (from, to) if from == to => true,
            (from, _) if from.is_terminal() => false,
            (_, to) if to.is_terminal() => true,
            (Pending, Provisioning | Running) | (Provisioning, Running) => true,
            (Running, Paused) | (Paused, Running) => true,
            _ => false,
        }
    }
}

/// Why a sandbox ended. Decides its terminal status, its public error type, and whether the fault was ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// A client deleted it.
    Deleted,
    /// Its lifetime was over.
    Timeout,
    /// Nothing was active in it for its idle timeout.
    Idle,
    /// Its image could not be had: wrong name, no access, broken content, wrong architecture.
    ImagePullFailed,
    /// What its image asks for cannot be had from it, such as a user that it does not know.
    ImageUnusable,
    /// A volume cannot be mounted where it is wanted, or holds no file system any more.
    VolumeUnusable,
    /// Its machine did not start.
    StartFailed,
    /// Its machine died: the VMM was killed or failed.
    VmmDied,
    /// The guest's kernel died.
    GuestDied,
    /// The guest switched its machine off, or restarted it past its init.
    PoweredOff,
    /// The guest died for lack of memory.
    OutOfMemory,
    /// The node that ran it was lost.
    NodeLost,
}

impl EndReason {
    /// The terminal status.
    pub fn status(self) -> Status {
        match self {
            EndReason::Deleted | EndReason::Idle | EndReason::PoweredOff => Status::Terminated,
            EndReason::Timeout => Status::Timeout,
            _ => Status::Error,
        }
    }

    /// The public error type, if the end was no ordinary one.
    pub fn error_type(self) -> Option<ErrorType> {
        match self {
            EndReason::Deleted => None,
            EndReason::Idle => Some(ErrorType::IdleTimeout),
            EndReason::Timeout => Some(ErrorType::Timeout),
            EndReason::ImagePullFailed => Some(ErrorType::ImagePullFailed),
            EndReason::ImageUnusable => Some(ErrorType::ImageUnusable),
            EndReason::VolumeUnusable => Some(ErrorType::VolumeUnusable),
            EndReason::StartFailed => Some(ErrorType::StartFailed),
            EndReason::VmmDied => Some(ErrorType::VmmDied),
            EndReason::GuestDied => Some(ErrorType::GuestDied),
            EndReason::PoweredOff => Some(ErrorType::PoweredOff),
            EndReason::OutOfMemory => Some(ErrorType::OomKilled),
            EndReason::NodeLost => Some(ErrorType::NodeLost),
        }
    }

    /// Whether the platform failed, so that the episode says nothing about the task.
    pub fn infra_fault(self) -> bool {
        matches!(self, EndReason::StartFailed | EndReason::VmmDied | EndReason::NodeLost)
    }
}

/// The closed list of error types that the public API shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorType {
    /// The guest's kernel killed something for lack of memory.
    OomKilled,
    /// The lifetime was over.
    Timeout,
    /// Nothing was active for the idle timeout.
    IdleTimeout,
    /// The image could not be had.
    ImagePullFailed,
    /// What the image asks for cannot be had from it.
    ImageUnusable,
    /// A volume cannot be mounted.
    VolumeUnusable,
    /// The machine did not start.
    StartFailed,
    /// The VMM died.
    VmmDied,
    /// The guest died.
    GuestDied,
    /// The guest switched its machine off.
    PoweredOff,
    /// The node was lost.
    NodeLost,
}

impl ErrorType {
    /// The word of the public API.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorType::OomKilled => "OOM_KILLED",
            ErrorType::Timeout => "TIMEOUT",
            ErrorType::IdleTimeout => "IDLE_TIMEOUT",
            ErrorType::ImagePullFailed => "IMAGE_PULL_FAILED",
            ErrorType::ImageUnusable => "IMAGE_UNUSABLE",
            ErrorType::VolumeUnusable => "VOLUME_UNUSABLE",
            ErrorType::StartFailed => "START_FAILED",
            ErrorType::VmmDied => "VMM_DIED",
            ErrorType::GuestDied => "GUEST_DIED",
            ErrorType::PoweredOff => "POWERED_OFF",
            ErrorType::NodeLost => "NODE_LOST",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_states_are_final() {
        for from in Status::ALL.into_iter().filter(|s| s.is_terminal()) {
            for to in Status::ALL {
                assert_eq!(from.may_become(to), from == to, "{from:?} -> {to:?}");
            }
        }
    }

    #[test]
    fn every_live_state_can_end_and_words_round_trip() {
        for from in Status::ALL {
            assert_eq!(Status::parse(from.as_str()), Some(from));
            assert!(from.is_terminal() || from.may_become(Status::Terminated));
        }
        assert_eq!(Status::parse("TERMINATING"), None);
    }
}
