use super::{Image, Store, blocking, chain, image_error, pin};
use crate::convert::Marks;
use crate::oci::{ARCHITECTURE, Config};
use crate::progress::Progress;
use crate::source::{Package, hash};
use warren_proto::node::ImageError;

/// Name of the empty file system. No registry is asked for it, and nobody is shown it.
const NAME: &str = "prime/_volume/blank:1";
/// What its digest is the hash of: nothing else has it. A change of how file systems are made needs another text.
const CONTENT: &[u8] = b"warren blank volume 1";

impl Store {
    /// An empty file system, which a volume is until it is published. Made on first need.
    pub async fn blank(&self) -> Result<Image, ImageError> {
        let digest = hash(CONTENT).map_err(|e| image_error(NAME, "failed", chain(&e)))?;
        if let Some(image) = self.lease(digest.as_str()) {
            return Ok(image);
        }
        let config = Config { architecture: ARCHITECTURE.to_owned(), ..Config::default() };
        let package = Package { digest: Some(digest), config, layers: Vec::new(), marks: Marks::Literal, bytes: 0 };
        let shared = self.shared.clone();
        // Goes on even if the caller goes away; the lease keeps the image until the name does.
        let work = async move {
            let scope = Some(pin::SCOPE.to_owned());
            let progress = Progress::new(NAME.to_owned(), scope.clone());
            let image = shared.convert(NAME, package, progress, true).await?;
            blocking(move || shared.name(NAME.to_owned(), image, None, scope)).await
        };
        let made = tokio::spawn(work).await;
        made.unwrap_or_else(|failed| Err(image_error(NAME, "failed", failed.to_string())))
    }
}
