//! Manifests, indexes and configs of one repository: small, checked, fetched once a digest.

use super::client::{Client, read};
use super::endpoint::Endpoint;
use super::errand::Errand;
use super::error::PullError;
use crate::limits::MANIFEST_BYTES_MAX;
use crate::oci::ACCEPTED;
use crate::scratch::Scratch;
use crate::source::hash;
use reqwest::header::{ACCEPT, HeaderMap};
use reqwest::{Method, Response, StatusCode};
use std::io::Read as _;
use std::path::PathBuf;
use warren_model::reference::{Digest, Reference, Version};

/// Header with the digest of a manifest.
const DIGEST_HEADER: &str = "docker-content-digest";
/// Path of manifests in a repository.
const MANIFESTS: &str = "manifests";

/// A repository at one endpoint, for one errand.
pub(super) struct Repository<'a> {
    pub(super) client: &'a Client,
    pub(super) endpoint: &'a Endpoint,
    pub(super) name: &'a str,
    pub(super) errand: &'a Errand,
    /// Names files that nobody else uses.
    pub(super) scratch: &'a (dyn Fn() -> PathBuf + Sync),
}

impl Repository<'_> {
    /// Digest of what the reference names now, if the registry tells that without sending it.
    pub(super) async fn ask(&self, reference: &Reference) -> Result<Option<Digest>, PullError> {
        let response = self.request(Method::HEAD, MANIFESTS, version(reference)).await?;
        match response.status() {
            StatusCode::OK => {
                Ok(named_digest(response.headers()).filter(|d| reference.digest().is_none_or(|r| r == d)))
            }
            // It will not say anything else to the next request.
            StatusCode::TOO_MANY_REQUESTS => self.accept(version(reference), response).map(|_| None),
            // The full request will tell what is wrong.
            _ => Ok(None),
        }
    }

    /// What the reference names, from the registry.
    pub(super) async fn named(&self, reference: &Reference) -> Result<(Vec<u8>, Digest), PullError> {
        let version = version(reference);
        let response = self.accept(version, self.request(Method::GET, MANIFESTS, version).await?)?;
        let said = named_digest(response.headers());
        let bytes = read(self.endpoint, response, "a manifest", MANIFEST_BYTES_MAX).await?;
        let digest = hash(&bytes)?;
        self.check(reference.digest().or(said.as_ref()), &digest)?;
        Ok((bytes, digest))
    }

    /// A manifest or index by its digest.
    pub(super) async fn manifest(&self, digest: &Digest) -> Result<Vec<u8>, PullError> {
        self.document(MANIFESTS, digest, MANIFEST_BYTES_MAX).await
    }

    /// A small blob by its digest: one that is here, or from the registry, by one of all who want it now.
    pub(super) async fn document(&self, kind: &str, digest: &Digest, max: u64) -> Result<Vec<u8>, PullError> {
        let turn = match self
            .client
            .inner
            .blobs
            .turn(digest, self.errand.scope(self.endpoint))
            .await
            .map_err(PullError::Write)?
        {
            Ok(pinned) => {
                let mut bytes = Vec::new();
                let read = pinned.open().and_then(|reader| reader.take(max).read_to_end(&mut bytes));
                return read.map(|_| bytes).map_err(PullError::Write);
            }
            Err(turn) => turn,
        };
        let response = self.request(Method::GET, kind, digest.as_str()).await?;
        let response = self.accept(digest.as_str(), response)?;
        let bytes = read(self.endpoint, response, "a manifest or config", max).await?;
        self.check(Some(digest), &hash(&bytes)?)?;
        let file = Scratch::new((self.scratch)());
        tokio::fs::write(file.path(), &bytes).await.map_err(PullError::Write)?;
        turn.keep(file.path()).map_err(PullError::Write)?;
        Ok(bytes)
    }

    async fn request(&self, method: Method, kind: &str, version: &str) -> Result<Response, PullError> {
        let url = self.endpoint.url(self.name, kind, version);
        let inner = &self.client.inner;
        let request = || {
            let request = inner.http.client(self.endpoint).request(method.clone(), &url);
            if kind == MANIFESTS { request.header(ACCEPT, ACCEPTED) } else { request }
        };
        inner.auth.send(&inner.http, self.errand, self.endpoint, self.name, request).await
    }

    fn accept(&self, what: &str, response: Response) -> Result<Response, PullError> {
        self.client.accept(self.errand, self.endpoint, self.name, what, response)
    }

    fn check(&self, expected: Option<&Digest>, found: &Digest) -> Result<(), PullError> {
        match expected {
            Some(expected) if expected != found => Err(PullError::Digest {
                host: self.endpoint.host.clone(),
                expected: expected.clone(),
                found: found.to_string(),
            }),
            _ => Ok(()),
        }
    }
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
