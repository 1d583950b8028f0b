//! An image registry on loopback, in memory, that counts what it is asked.

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// The registry. It serves as long as the runtime lives.
#[derive(Clone)]
pub struct Registry {
    /// `127.0.0.1:PORT`, as in references.
    pub address: String,
    inner: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    content: HashMap<String, Bytes>,
    asked: BTreeMap<String, usize>,
    delay: Duration,
}

impl Registry {
    /// Begins to serve on a free port.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let registry = Self { address: listener.local_addr()?.to_string(), inner: Arc::default() };
        let serving = registry.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                let service = service_fn(move |request| {
                    let serving = serving.clone();
                    async move { Ok::<_, Infallible>(serving.answer(&request).await) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Ok(registry)
    }

    /// Every answer comes so much later from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Puts an image of uncompressed layer tars under a tag; its reference.
    pub fn push(&self, repository: &str, tag: &str, layers: &[Bytes]) -> String {
        let digests: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
        let config = json!({"architecture": "amd64", "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": digests}});
        let config = Bytes::from(config.to_string());
        let descriptors: Vec<_> = layers
            .iter()
            .map(|layer| json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest(layer), "size": layer.len()}))
            .collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"digest": digest(&config), "size": config.len()}, "layers": descriptors});
        let manifest = Bytes::from(manifest.to_string());
        let content = &mut self.lock().content;
        for blob in layers.iter().chain([&config]) {
            content.insert(format!("/v2/{repository}/blobs/{}", digest(blob)), blob.clone());
        }
        for version in [tag.to_owned(), digest(&manifest)] {
            content.insert(format!("/v2/{repository}/manifests/{version}"), manifest.clone());
        }
        format!("{}/{repository}:{tag}", self.address)
    }

    /// How often each digest was fetched, from whatever repository.
    pub fn fetched(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (request, count) in &self.lock().asked {
            if let Some(at) = request.find("sha256:").filter(|_| request.starts_with("GET ")) {
                *counts.entry(request[at..].to_owned()).or_default() += count;
            }
        }
        counts
    }

    /// Requests that contain `needle`, such as `HEAD /v2/app/manifests/1`.
    pub fn asked(&self, needle: &str) -> usize {
        self.lock().asked.iter().filter(|(request, _)| request.contains(needle)).map(|(_, count)| count).sum()
    }

    async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let (found, delay) = {
            let mut state = self.lock();
            *state.asked.entry(format!("{} {}", request.method(), request.uri().path())).or_default() += 1;
            (state.content.get(request.uri().path()).cloned(), state.delay)
        };
        tokio::time::sleep(delay).await;
        let mut response = Response::new(Full::default());
        let Some(body) = found else {
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        };
        if let Ok(value) = digest(&body).parse() {
            response.headers_mut().insert("docker-content-digest", value);
        }
        if request.method() == Method::GET {
            *response.body_mut() = Full::new(body);
        }
        response
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}
