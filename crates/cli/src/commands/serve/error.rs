use crate::failure::Failure;
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error("cannot use the data directory {}: {source}", path.display())]
    DataDir { path: PathBuf, source: std::io::Error },
    #[error("another server (pid {pid}) uses the data directory {}", path.display())]
    Locked { path: PathBuf, pid: String },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot use {} for TLS: {problem}", path.display())]
    Tls { path: PathBuf, problem: String },
    #[error("cannot use {} for registries: {problem}", path.display())]
    Registries { path: PathBuf, problem: String },
    #[error("cannot {action}: {source}")]
    System { action: &'static str, source: std::io::Error },
    #[error(transparent)]
    Node(#[from] Box<warren_node::OpenError>),
    #[error(transparent)]
    Control(#[from] warren_control::OpenError),
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let hint = match &error {
            ServeError::DataDir { .. } => "choose another with --data-dir, or make it writable for this user",
            ServeError::Locked { .. } => "end that server first, or choose another --data-dir",
            ServeError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
                "another program listens there: choose another address with --listen"
            }
            ServeError::Listen { .. } => "choose another address with --listen",
            ServeError::Tls { .. } => "--tls-cert takes the certificate chain, --tls-key its private key, both as PEM",
            ServeError::Registries { .. } => "docs/operations.md shows the form of the file",
            ServeError::System { .. } | ServeError::Control(_) => return Failure::new(text(&error)),
            ServeError::Node(_) => "`warren doctor` says what is missing on this machine",
        };
        Failure::new(text(&error)).hint(hint)
    }
}

/// The error, with causes that it does not tell itself.
fn text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let taken = std::io::Error::from(std::io::ErrorKind::AddrInUse);
        let error = ServeError::Listen { address: SocketAddr::from(([127, 0, 0, 1], 8700)), source: taken };
        let lines = Failure::from(error).lines();
        assert!(
            lines[0].starts_with("error: cannot listen on 127.0.0.1:8700") && lines[1].contains("--listen"),
            "{lines:?}"
        );
    }
}
