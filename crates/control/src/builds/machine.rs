//! Where a build is and what may follow: pure.
//!
//! ```text
//!  Dockerfile            source
//!      │                   │
//!      ▼                   ▼
//!  Awaiting ─► Uploading ─► Uploaded ─► Queued ─► Building ─► Completed
//!      ▲           │            │         ▲  │        │
//!      └───────────┘            │         └──┼────────┤ (the server was restarted)
//!   (the upload broke)          ▼            ▼        ▼
//!                            Failed, Cancelled: from every state that is not over
//! ```

use warren_proto::http::BuildStatus;

/// Where a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// Nothing of its context has come.
    Awaiting,
    /// Its context comes.
    Uploading,
    /// Its context is here.
    Uploaded,
    /// It waits for its turn.
    Queued,
    /// Under way.
    Building,
    /// The tag leads to its image.
    Completed,
    /// Over without an image.
    Failed,
    /// Over because somebody wanted it.
    Cancelled,
}

/// What happens to a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// The first bytes of the context come.
    UploadBegan,
    /// The context is on disk.
    UploadDone,
    /// The upload broke off, or was larger than it may be.
    UploadBroke,
    /// The client wants it built.
    Start,
    /// It is its turn.
    Pick,
    /// Whoever was at it is gone.
    Requeue,
    /// Its image is pinned.
    Complete,
    /// It cannot be done.
    Fail,
    /// Somebody wants it ended.
    Cancel,
}

impl State {
    /// Each with its word in the store.
    const WORDS: [(State, &'static str); 8] = [
        (State::Awaiting, "awaiting"),
        (State::Uploading, "uploading"),
        (State::Uploaded, "uploaded"),
        (State::Queued, "queued"),
        (State::Building, "building"),
        (State::Completed, "completed"),
        (State::Failed, "failed"),
        (State::Cancelled, "cancelled"),
    ];

    /// As the store has it.
    pub(crate) fn as_str(self) -> &'static str {
        Self::WORDS.into_iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }

    /// What [`State::as_str`] made.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::WORDS.into_iter().find(|(_, known)| *known == word).map(|(state, _)| state)
    }

    /// The word for clients.
    pub(crate) fn status(self) -> BuildStatus {
        match self {
            State::Awaiting | State::Queued => BuildStatus::Pending,
            State::Uploading | State::Uploaded => BuildStatus::Uploading,
            State::Building => BuildStatus::Building,
            State::Completed => BuildStatus::Completed,
            State::Failed => BuildStatus::Failed,
            State::Cancelled => BuildStatus::Cancelled,
        }
    }

    /// Whether nothing more happens to it.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, State::Completed | State::Failed | State::Cancelled)
    }

    /// The state after `event`; `None` if that cannot happen now.
    pub(crate) fn after(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Awaiting | State::Uploaded, Event::UploadBegan) => Some(State::Uploading),
            (State::Uploading, Event::UploadDone) => Some(State::Uploaded),
            (State::Uploading, Event::UploadBroke) => Some(State::Awaiting),
            (State::Uploaded, Event::Start) | (State::Building, Event::Requeue) => Some(State::Queued),
            (State::Queued, Event::Pick) => Some(State::Building),
            (State::Building, Event::Complete) => Some(State::Completed),
            (state, Event::Fail) if !state.is_over() => Some(State::Failed),
            (state, Event::Cancel) if !state.is_over() => Some(State::Cancelled),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EVENTS: [Event; 9] = [
        Event::UploadBegan,
        Event::UploadDone,
        Event::UploadBroke,
        Event::Start,
        Event::Pick,
        Event::Requeue,
        Event::Complete,
        Event::Fail,
        Event::Cancel,
    ];

    #[test]
    fn a_build_of_a_dockerfile() {
        use Event::*;
        let life = [UploadBegan, UploadBroke, UploadBegan, UploadDone, Start, Pick, Requeue, Pick, Complete];
        let end = life.into_iter().try_fold(State::Awaiting, State::after);
        assert_eq!(end, Some(State::Completed));
        assert_eq!(State::Awaiting.after(Start), None, "without a context");
        assert_eq!(State::Queued.after(Complete), None);
    }

    proptest! {
        #[test]
        fn what_is_over_stays_over(events in prop::collection::vec(prop::sample::select(&EVENTS[..]), 0..20)) {
            let mut state = State::Awaiting;
            for event in events {
                let next = state.after(event);
                prop_assert!(!state.is_over() || next.is_none());
                state = next.unwrap_or(state);
                prop_assert_eq!(State::parse(state.as_str()), Some(state));
                prop_assert_eq!(state.is_over(), state.status().is_terminal());
            }
        }
    }
}
