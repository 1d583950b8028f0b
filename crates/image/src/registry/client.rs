use super::auth::{Auth, limited};
use super::blobs::Blobs;
use super::config::RegistryConfig;
use super::documents::Repository;
use super::download::Downloads;
use super::endpoint::{Endpoint, check, endpoints};
use super::errand::Errand;
use super::error::PullError;
use super::http::Http;
use crate::convert::Marks;
use crate::limits::CONFIG_BYTES_MAX;
use crate::oci::{self, Manifest, Search};
use crate::progress::Step;
use crate::source::{Layer, Package, pair};
use crate::store::chain;
use reqwest::{Response, StatusCode};
use std::path::PathBuf;
use std::sync::Arc;
use warren_model::reference::{Digest, Reference};

/// Asks registries. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) http: Http,
    pub(super) auth: Auth,
    pub(super) blobs: Arc<Blobs>,
    config: RegistryConfig,
}

/// What a reference means now.
pub(crate) enum Meaning {
    /// What it meant before. Whether that was said to the owner of a saved login.
    Same { private: bool },
    /// Something that has to be looked at.
    New(Box<Resolved>),
}

/// A reference with its manifest.
pub(crate) struct Resolved {
    /// Digest of the manifest for this machine.
    pub(crate) digest: Digest,
    /// Digest of what the reference names: that manifest, or an index that lists it.
    pub(crate) asked: Digest,
    /// Whose it is, if a saved login was used.
    pub(crate) scope: Option<String>,
    manifest: Manifest,
    endpoint: Endpoint,
}

impl Client {
    /// A client; the error says what of `config` cannot work.
    pub(crate) fn new(config: RegistryConfig, blobs: Arc<Blobs>) -> Result<Self, String> {
        check(&config)?;
        let inner = Inner { http: Http::new()?, auth: Auth::new(config.clone()), blobs, config };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// How the registries are reached.
    pub(crate) fn config(&self) -> &RegistryConfig {
        &self.inner.config
    }

    /// What has been fetched before.
    pub(crate) fn blobs(&self) -> &Blobs {
        &self.inner.blobs
    }

    /// Asks what the reference names, which was `known` before, and finds the manifest for this machine: mirrors first, then the
    /// registry, whose word counts if all fail.
    pub(crate) async fn resolve(
        &self,
        reference: &Reference,
        errand: &Errand,
        known: Option<&Digest>,
        scratch: &(dyn Fn() -> PathBuf + Sync),
    ) -> Result<Meaning, PullError> {
        let mut failures = Vec::new();
        for endpoint in self.endpoints(reference) {
            let repository = self.repository(&endpoint, reference, errand, scratch);
            match resolve_at(&repository, reference, known).await {
                Ok(meaning) => return Ok(meaning),
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

    /// Fetches the config.
    pub(crate) async fn config_of(
        &self,
        reference: &Reference,
        errand: &Errand,
        resolved: &Resolved,
        scratch: &(dyn Fn() -> PathBuf + Sync),
    ) -> Result<oci::Config, PullError> {
        let repository = self.repository(&resolved.endpoint, reference, errand, scratch);
        let bytes = repository.document("blobs", &resolved.manifest.config.digest, CONFIG_BYTES_MAX).await?;
        Ok(oci::parse_config(&bytes)?)
    }

    /// Fetches the config and starts fetching the layers into files that `scratch` names.
    pub(crate) async fn package(
        &self,
        reference: &Reference,
        errand: &Errand,
        resolved: Resolved,
        scratch: &(dyn Fn() -> PathBuf + Sync),
    ) -> Result<Package, PullError> {
        let config = self.config_of(reference, errand, &resolved, scratch).await?;
        let Resolved { digest, manifest, endpoint, scope, .. } = resolved;
        let bytes = manifest.layers.iter().map(|l| l.size).fold(0, u64::saturating_add);
        errand.progress.set_total(bytes, manifest.layers.len());
        errand.progress.start(if manifest.layers.is_empty() { Step::Converting } else { Step::Pulling });
        let layers = pair(manifest.layers, &config)?;
        let mut downloads = Downloads::new(self.clone(), endpoint, reference.repository(), errand.clone(), scope);
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

    fn repository<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        reference: &'a Reference,
        errand: &'a Errand,
        scratch: &'a (dyn Fn() -> PathBuf + Sync),
    ) -> Repository<'a> {
        Repository { client: self, endpoint, name: reference.repository(), errand, scratch }
    }

    /// The answer, if it is one with content; else what it means.
    pub(super) fn accept(
        &self,
        errand: &Errand,
        endpoint: &Endpoint,
        repository: &str,
        what: &str,
        response: Response,
    ) -> Result<Response, PullError> {
        let host = endpoint.host.clone();
        Err(match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(response),
            StatusCode::NOT_FOUND => PullError::NotFound { host, what: format!("{repository} {what}") },
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.inner.auth.denied(errand, endpoint, repository),
            StatusCode::TOO_MANY_REQUESTS => limited(endpoint, &response),
            status if status.is_server_error() => PullError::Broken { host, status: status.as_u16() },
            status => PullError::Protocol { host, problem: format!("with status {status}") },
        })
    }

    fn endpoints(&self, reference: &Reference) -> Vec<Endpoint> {
        reference.registry().map(|host| endpoints(host, &self.inner.config)).unwrap_or_default()
    }
}

async fn resolve_at(
    repository: &Repository<'_>,
    reference: &Reference,
    known: Option<&Digest>,
) -> Result<Meaning, PullError> {
    // The registry is asked for each reference, also for one by digest whose manifest is here: that is what shows that whoever
    // asks may have it.
    let asked = repository.ask(reference).await?;
    let (endpoint, scope) = (repository.endpoint.clone(), repository.errand.scope(repository.endpoint));
    if asked.is_some() && asked.as_ref() == known {
        return Ok(Meaning::Same { private: scope.is_some() });
    }
    let (mut bytes, asked) = match asked {
        Some(digest) => (repository.manifest(&digest).await?, digest),
        None => repository.named(reference).await?,
    };
    let mut digest = asked.clone();
    let mut search = Search::default();
    let manifest = loop {
        match search.look(&bytes)? {
            oci::Looked::Manifest(manifest) => break manifest,
            oci::Looked::Next(entry) => {
                bytes = repository.manifest(&entry.digest).await?;
                digest = entry.digest;
            }
        }
    };
    Ok(Meaning::New(Box::new(Resolved { digest, asked, scope: scope.map(str::to_owned), manifest, endpoint })))
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
