use super::ApiError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::Path;
use std::sync::Arc;

/// Trust in the system's authorities (or those of `SSL_CERT_FILE`), and in those of `extra`.
pub(super) fn config(extra: Option<&Path>) -> Result<rustls::ClientConfig, ApiError> {
    let mut roots = rustls::RootCertStore::empty();
    // A machine without certificates still reaches `http://` servers; `https://` then fails with the reason.
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(path) = extra {
        for certificate in read(path)? {
            roots.add(certificate).map_err(|error| bad_file(path, &error.to_string()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ApiError::Setup { problem: error.to_string() })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, ApiError> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad_file(path, &error.to_string()))?;
    if certificates.is_empty() { Err(bad_file(path, "no certificate in it")) } else { Ok(certificates) }
}

fn bad_file(path: &Path, problem: &str) -> ApiError {
    ApiError::Setup { problem: format!("certificate authority {}: {problem}", path.display()) }
}
