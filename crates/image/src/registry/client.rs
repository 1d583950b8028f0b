use super::auth::Auth;
use super::config::RegistryConfig;
use super::download::Downloads;
use super::endpoint::{Endpoint, check, endpoints};
use super::error::PullError;
use super::http::Http;
use crate::convert::Marks;
use crate::limits::{CONFIG_BYTES_MAX, MANIFEST_BYTES_MAX};
use crate::oci::{self, ACCEPTED, Document, Manifest, OciError};
use crate::progress::{Progress, Step};
use crate::source::{Layer, Package, hash, pair};
use crate::store::chain;
use reqwest::header::{ACCEPT, HeaderMap};
use reqwest::{Method, Response, StatusCode};
use std::path::PathBuf;
use std::sync::Arc;
use warren_model::reference::{Digest, Reference, Version};

/// Header with the digest of a manifest.
const DIGEST_HEADER: &str = "docker-content-digest";

/// Asks registries. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) http: Http,
    pub(super) auth: Auth,
    config: RegistryConfig,
}

/// What a reference means now.
pub(crate) struct Resolved {
    /// Digest of the manifest for this machine.
    pub(crate) digest: Digest,
    /// Digest of what the reference names: that manifest, or an index that lists it.
    pub(crate) asked: Digest,
    manifest: Manifest,
    endpoint: Endpoint,
}

impl Client {
    /// A client; the error says what of `config` cannot work.
    pub(crate) fn new(config: RegistryConfig) -> Result<Self, String> {
        check(&config)?;
        let inner = Inner { http: Http::new()?, auth: Auth::new(config.clone()), config };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Digest of what the reference names now, if the registry tells that without sending it.
    pub(crate) async fn head(&self, reference: &Reference) -> Result<Option<Digest>, PullError> {
        let mut last = None;
        for endpoint in self.endpoints(reference) {
            match self.manifest_request(Method::HEAD, &endpoint, reference, version(reference)).await {
                Ok(response) if response.status() == StatusCode::OK => return Ok(named_digest(response.headers())),
                Ok(response) if response.status() == StatusCode::TOO_MANY_REQUESTS => {
                    last = Some(PullError::RateLimited { host: endpoint.host.clone() });
                }
                // The full request will tell what is wrong.
                Ok(_) => return Ok(None),
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(None), Err)
    }

    /// Finds the manifest for this machine: mirrors first, then the registry, whose word counts if all fail.
    pub(crate) async fn resolve(&self, reference: &Reference) -> Result<Resolved, PullError> {
        let mut failures = Vec::new();
        for endpoint in self.endpoints(reference) {
            match self.resolve_at(endpoint, reference).await {
                Ok(resolved) => return Ok(resolved),
                Err(error) => failures.push(error),
            }
        }
        let own = failures.pop().unwrap_or_else(|| PullError::Protocol {
            host: String::new(),
            problem: "an image that no registry has".to_owned(),
        });
        if failures.is_empty() || !own.is_unreachable() {
            return Err(own);
        }
        let mirrors = failures.iter().map(|failure| chain(failure)).collect::<Vec<_>>().join("; ");
        Err(PullError::WithMirrors { mirrors, own: Box::new(own) })
    }

    async fn resolve_at(&self, endpoint: Endpoint, reference: &Reference) -> Result<Resolved, PullError> {
        let (bytes, asked) = self.manifest(&endpoint, reference, version(reference), reference.digest()).await?;
        let (document, digest) = match oci::parse_document(&bytes)? {
            Document::Manifest(manifest) => return Ok(Resolved { digest: asked.clone(), asked, manifest, endpoint }),
            Document::Index(entry) => {
                let wanted = Some(&entry.digest);
                let (bytes, digest) = self.manifest(&endpoint, reference, entry.digest.as_str(), wanted).await?;
                (oci::parse_document(&bytes)?, digest)
            }
        };
        match document {
            Document::Manifest(manifest) => Ok(Resolved { digest, asked, manifest, endpoint }),
            Document::Index(_) => Err(OciError::Unsupported("an index of indexes".to_owned()).into()),
        }
    }

    /// Fetches the config and starts fetching the layers into files that `scratch` names.
    pub(crate) async fn package(
        &self,
        reference: &Reference,
        resolved: Resolved,
        scratch: impl Fn() -> PathBuf,
        progress: &Arc<Progress>,
    ) -> Result<Package, PullError> {
        let Resolved { digest, manifest, endpoint, asked: _ } = resolved;
        let config = self.config(&endpoint, reference, &manifest).await?;
        let bytes = manifest.layers.iter().map(|l| l.size).fold(0, u64::saturating_add);
        progress.set_total(bytes);
        progress.start(if manifest.layers.is_empty() { Step::Converting } else { Step::Pulling });
        let layers = pair(manifest.layers, &config)?;
        let mut downloads = Downloads::new(self.clone(), endpoint, reference.repository(), progress.clone());
        let opened: Vec<_> = layers.iter().map(|(blob, _)| downloads.start(blob.clone(), scratch())).collect();
        let guard = Arc::new(downloads);
        let layers = layers
            .into_iter()
            .zip(opened)
            .map(|((_, diff_id), download)| Layer {
                // Checked while it came in.
                blob: None,
                diff_id: Some(diff_id),
                open: download.into_layer(guard.clone()),
            })
            .collect();
        Ok(Package { digest: Some(digest), config, layers, marks: Marks::Whiteouts, bytes })
    }

    async fn config(
        &self,
        endpoint: &Endpoint,
        reference: &Reference,
        manifest: &Manifest,
    ) -> Result<oci::Config, PullError> {
        let digest = &manifest.config.digest;
        let url = endpoint.url(reference.repository(), "blobs", digest.as_str());
        let request = || self.inner.http.client(endpoint).get(&url);
        let response = self.inner.auth.send(&self.inner.http, endpoint, reference.repository(), request).await?;
        let response = self.accept(endpoint, reference.repository(), digest.as_str(), response)?;
        let bytes = read(endpoint, response, "an image config", CONFIG_BYTES_MAX).await?;
        check_digest(endpoint, Some(digest), &hash(&bytes)?)?;
        Ok(oci::parse_config(&bytes)?)
    }

    async fn manifest(
        &self,
        endpoint: &Endpoint,
        reference: &Reference,
        version: &str,
        wanted: Option<&Digest>,
    ) -> Result<(Vec<u8>, Digest), PullError> {
        let response = self.manifest_request(Method::GET, endpoint, reference, version).await?;
        let response = self.accept(endpoint, reference.repository(), version, response)?;
        let said = named_digest(response.headers());
        let bytes = read(endpoint, response, "a manifest", MANIFEST_BYTES_MAX).await?;
        let digest = hash(&bytes)?;
        check_digest(endpoint, wanted.or(said.as_ref()), &digest)?;
        Ok((bytes, digest))
    }

    async fn manifest_request(
        &self,
        method: Method,
        endpoint: &Endpoint,
        reference: &Reference,
        version: &str,
    ) -> Result<Response, PullError> {
        let url = endpoint.url(reference.repository(), "manifests", version);
        let http = &self.inner.http;
        let request = || http.client(endpoint).request(method.clone(), &url).header(ACCEPT, ACCEPTED);
        self.inner.auth.send(http, endpoint, reference.repository(), request).await
    }

    /// The answer, if it is one with content; else what it means.
    pub(super) fn accept(
        &self,
        endpoint: &Endpoint,
        repository: &str,
        what: &str,
        response: Response,
    ) -> Result<Response, PullError> {
        let host = endpoint.host.clone();
        Err(match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(response),
            StatusCode::NOT_FOUND => PullError::NotFound { host, what: format!("{repository} {what}") },
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.inner.auth.denied(endpoint, repository),
            StatusCode::TOO_MANY_REQUESTS => PullError::RateLimited { host },
            status if status.is_server_error() => PullError::Broken { host, status: status.as_u16() },
            status => PullError::Protocol { host, problem: format!("with status {status}") },
        })
    }

    fn endpoints(&self, reference: &Reference) -> Vec<Endpoint> {
        reference.registry().map(|host| endpoints(host, &self.inner.config)).unwrap_or_default()
    }
}

/// The body, if it is not larger than it may be.
pub(super) async fn read(
    endpoint: &Endpoint,
    mut response: Response,
    what: &str,
    max: u64,
) -> Result<Vec<u8>, PullError> {
    let mut bytes = Vec::new();
    let unreachable = |error| PullError::Unreachable { host: endpoint.host.clone(), error };
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if (bytes.len() + chunk.len()) as u64 > max {
            return Err(PullError::TooLarge { host: endpoint.host.clone(), what: what.to_owned(), max });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn version(reference: &Reference) -> &str {
    match reference.version() {
        Version::Tag(tag) => tag,
        Version::Digest(digest) => digest.as_str(),
    }
}

fn named_digest(headers: &HeaderMap) -> Option<Digest> {
    Digest::parse(headers.get(DIGEST_HEADER)?.to_str().ok()?).ok()
}

fn check_digest(endpoint: &Endpoint, expected: Option<&Digest>, found: &Digest) -> Result<(), PullError> {
    match expected {
        Some(expected) if expected != found => {
            Err(PullError::Digest { host: endpoint.host.clone(), expected: expected.clone(), found: found.to_string() })
        }
        _ => Ok(()),
    }
}
