use super::ensure::Listed;
use super::{Image, Store, blocking, chain, image_error, parse};
use crate::progress::{Progress, Step};
use crate::scratch::Scratch;
use crate::source;
use std::path::PathBuf;
use warren_proto::node::ImageError;

impl Store {
    /// Takes an OCI layout (directory or tar), a docker-archive or a root file system tar under a name of one's own. The
    /// name needs no registry from then on, and stops leading to what it led to before. Goes on even if the caller goes away.
    pub async fn import(&self, path: PathBuf, name: &str) -> Result<Image, ImageError> {
        self.take(path, name, None).await
    }

    /// The same with the result of a build: the name is for whoever knows it, and its digest gives nobody the bytes.
    pub async fn import_private(&self, path: PathBuf, name: &str) -> Result<Image, ImageError> {
        self.take(path, name, Some(super::pin::SCOPE.to_owned())).await
    }

    async fn take(&self, path: PathBuf, name: &str, scope: Option<String>) -> Result<Image, ImageError> {
        let reference = parse(name)?;
        if reference.digest().is_some() {
            let advice = "an imported image needs a name and a tag, its digest comes from its content".to_owned();
            return Err(image_error(name, "bad_reference", advice));
        }
        let name = reference.to_string();
        let shared = self.shared.clone();
        let work = async move {
            let progress = Progress::new(name.clone(), scope.clone());
            let _listed = Listed::new(shared.clone(), progress.clone());
            let scratch = Scratch::new(shared.files.scratch());
            let opened = blocking(move || {
                let package = source::open_archive(&path, scratch.path());
                // Compressed archives were unpacked there and must stay until they are converted.
                (package, scratch)
            });
            let (package, _scratch) = opened.await;
            let package = package.map_err(|e| image_error(&name, e.code(), chain(&e)))?;
            progress.start(Step::Converting);
            let image = shared.convert(&name, package, progress, scope.is_some()).await?;
            blocking(move || shared.name(name, image, None, scope)).await
        };
        match tokio::spawn(work).await {
            Ok(outcome) => outcome,
            Err(failed) => Err(image_error(reference.repository(), "failed", failed.to_string())),
        }
    }
}
