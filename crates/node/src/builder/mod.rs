//! Builds Dockerfiles in a sandbox of an image that has Docker: context in, bases in, output out, archive out, all by the guest's own
//! protocol.

mod archive;
mod base;
mod exec;
mod guest;
mod log;
mod sparse_tar;

pub(crate) use exec::run;
pub(crate) use guest::Guest;

use crate::sandbox::Handle;
use crate::shim_client::ShimClient;
use bytes::Bytes;
use log::Log;
use std::time::Duration;
use warren_image::Image;
use warren_proto::node::{BuildOrder, ImageError, limits};

/// The script that runs in the guest.
const SCRIPT: &str = include_str!("build.sh");
/// Where everything of a build lies in the guest.
const FOLDER: &str = "/var/lib/warren-build";
/// Longest time for the script's upload and for cleaning up.
const SMALL_WAIT: Duration = Duration::from_secs(60);

/// A builder at one build.
pub(crate) struct Builder<'a> {
    guest: Guest,
    order: &'a BuildOrder,
    script: String,
    log: Log,
}

impl<'a> Builder<'a> {
    /// The sandbox behind `shim`, for `order`.
    pub(crate) fn new(shim: ShimClient, order: &'a BuildOrder) -> Self {
        let log = Log::open(&order.log, limits::BUILD_LOG_LEN_MAX);
        Self { guest: Guest::new(shim), order, script: format!("{FOLDER}/build.sh"), log }
    }

    /// Takes the context in; answers the Dockerfile.
    pub(crate) async fn open(&mut self, handle: &Handle) -> Result<String, ImageError> {
        let _operation = handle.activity.begin();
        let put = self.guest.put(&self.script, Bytes::from_static(SCRIPT.as_bytes()));
        let small = tokio::time::timeout(SMALL_WAIT, put).await;
        small.map_err(|_| self.failed("the builder does not answer".to_owned()))?.map_err(|e| self.failed(e))?;
        let context = self.guest.put_file(&format!("{FOLDER}/context.tar.gz"), &self.order.context).await;
        context.map_err(|e| self.failed(e))?;
        self.step(&["open", &self.order.dockerfile]).await?;
        let read = archive::read(&self.guest, &format!("{FOLDER}/file/Dockerfile"), limits::DOCKERFILE_LEN_MAX).await;
        let bytes = read.map_err(|e| self.failed(e))?;
        let bytes = bytes.ok_or_else(|| self.refused("the Dockerfile is larger than 1 MiB".to_owned()))?;
        String::from_utf8(bytes).map_err(|_| self.refused("the Dockerfile is not UTF-8 text".to_owned()))
    }

    /// Builds on `bases`, those of the order, and leaves the result at `order.archive`.
    pub(crate) async fn build(&mut self, bases: &[Image]) -> Result<(), ImageError> {
        if let Some(text) = &self.order.text {
            let put = self.guest.put(&format!("{FOLDER}/file/Dockerfile"), Bytes::from(text.clone())).await;
            put.map_err(|e| self.failed(e))?;
        }
        for (base, image) in self.order.bases.iter().zip(bases) {
            let put = base::put(&self.guest, &self.script, &mut self.log, image, &base.name).await;
            put.map_err(|e| self.failed(format!("base {}: {e}", base.name)))?;
        }
        let args = self.order.args.iter().flat_map(|(name, value)| ["--build-arg".into(), format!("{name}={value}")]);
        let words: Vec<String> = std::iter::once("build".to_owned()).chain(args).collect();
        self.step(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let result = format!("{FOLDER}/image.tar");
        archive::fetch(&self.guest, &result, &self.order.archive).await.map_err(|e| self.failed(e))?;
        // The cache stays; a result that stays would only take its room.
        let removed = exec::run(&self.guest, vec!["/bin/rm".into(), "-f".into(), result], |_| {});
        let _ = tokio::time::timeout(SMALL_WAIT, removed).await;
        Ok(())
    }

    /// Runs a step whose failure is the build's.
    async fn step(&mut self, words: &[&str]) -> Result<(), ImageError> {
        let (words, log) = (exec::words(&self.script, words), &mut self.log);
        let ended = exec::run(&self.guest, words, |piece| log.add(piece)).await;
        match ended.map_err(|e| self.failed(e))? {
            0 => Ok(()),
            code => {
                let text = format!("the build ended with exit code {code}; its last words:\n{}", self.log.tail());
                Err(self.refused(text))
            }
        }
    }

    fn refused(&self, message: String) -> ImageError {
        ImageError { reference: self.order.name.clone(), code: "build_failed", message }
    }

    fn failed(&self, message: String) -> ImageError {
        ImageError { reference: self.order.name.clone(), code: "failed", message }
    }
}
