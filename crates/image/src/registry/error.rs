use crate::oci::OciError;
use std::io::{self, ErrorKind};
use warren_model::reference::{BadReference, Digest};
use warren_proto::node::ImageError;

/// An image could not be had from a registry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    /// No answer, or none that makes sense.
    #[error("registry {host} cannot be reached")]
    Unreachable {
        /// Which.
        host: String,
        /// Why.
        #[source]
        error: reqwest::Error,
    },
    /// Neither the registry nor any mirror of it can be reached.
    #[error("no mirror of it helps ({mirrors})")]
    WithMirrors {
        /// What each mirror did.
        mirrors: String,
        /// What the registry itself did.
        #[source]
        own: Box<PullError>,
    },
    /// It answers that it is broken.
    #[error("registry {host} failed with status {status}")]
    Broken {
        /// Which.
        host: String,
        /// HTTP status.
        status: u16,
    },
    /// It does not have this.
    #[error("registry {host} has no {what}; check name and tag")]
    NotFound {
        /// Which.
        host: String,
        /// Repository and tag or digest.
        what: String,
    },
    /// It wants a login, or another one.
    #[error("registry {host} refuses access to {what}: it does not exist, or needs a login{hint}")]
    Denied {
        /// Which.
        host: String,
        /// Repository.
        what: String,
        /// What of a login was tried.
        hint: &'static str,
    },
    /// Too many requests, also after waiting, or for longer than is waited.
    #[error("registry {host} limits the rate of requests{hint}; log in to it, configure a mirror, or wait")]
    RateLimited {
        /// Which.
        host: String,
        /// For how long, if it says so.
        hint: String,
    },
    /// Content is not what its digest says.
    #[error("registry {host} sent content with the digest {found} for {expected}")]
    Digest {
        /// Which.
        host: String,
        /// As asked for.
        expected: Digest,
        /// As it came.
        found: String,
    },
    /// More bytes than announced, or than any manifest should have.
    #[error("registry {host} sent more than {max} bytes for {what}")]
    TooLarge {
        /// Which.
        host: String,
        /// What.
        what: String,
        /// Limit.
        max: u64,
    },
    /// The registry's answer breaks the protocol.
    #[error("registry {host} answered {problem}")]
    Protocol {
        /// Which.
        host: String,
        /// How.
        problem: String,
    },
    /// A manifest or config that cannot be used.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// A layer could not be kept.
    #[error("storing a layer failed")]
    Write(#[source] io::Error),
    /// The name could not be kept.
    #[error("{}", .0.message)]
    Naming(ImageError),
    /// The download was given up because the build failed.
    #[error("the download was given up")]
    GivenUp,
}

impl PullError {
    /// Stable code of `proto::node::ImageError`.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::WithMirrors { own, .. } => own.code(),
            Self::Unreachable { .. } | Self::Broken { .. } => "registry_unreachable",
            Self::NotFound { .. } => "not_found",
            Self::Denied { .. } => "access_denied",
            Self::RateLimited { .. } => "rate_limited",
            Self::Digest { .. } => "digest_mismatch",
            Self::Oci(error) => error.code(),
            Self::TooLarge { .. } => "bad_content",
            Self::Write(e) if matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => "no_space",
            Self::Naming(error) => error.code,
            Self::Protocol { .. } | Self::Write(_) | Self::GivenUp => "failed",
        }
    }

    /// Whether the registry gave no answer at all, so that a known image may serve.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.code() == "registry_unreachable"
    }
}

impl From<BadReference> for PullError {
    fn from(error: BadReference) -> Self {
        Self::Oci(OciError::BadJson { what: "digest", problem: error.to_string() })
    }
}
