use super::error::ServeError;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Protocols that are offered, best first. The public clients need both.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Reads certificate and key; `None` without them.
pub(super) fn acceptor(certificate: Option<&Path>, key: Option<&Path>) -> Result<Option<TlsAcceptor>, ServeError> {
    let (Some(certificate), Some(key)) = (certificate, key) else { return Ok(None) };
    let bad = |path: &Path, problem: String| ServeError::Tls { path: path.to_owned(), problem };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(bad(certificate, "no certificate in it".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| bad(certificate, error.to_string()))?;
    config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}
