use super::{Image, Store, blocking, image_error, parse};
use warren_proto::node::ImageError;

/// Whom pinned names are shown to: nobody.
pub(super) const SCOPE: &str = "pinned";

impl Store {
    /// Gives the image of `digest`, which must be here, a name of one's own: no registry is asked for it, and the bytes stay
    /// for as long as the name does. The name stops leading to what it led to before.
    pub async fn pin(&self, digest: &str, name: &str) -> Result<Image, ImageError> {
        let name = parse(name)?.to_string();
        // The lease keeps the image until the name does.
        let gone = || image_error(&name, "not_found", format!("the image {digest} is not here"));
        let image = self.lease(digest).ok_or_else(gone)?;
        let shared = self.shared.clone();
        // Not public: control decides who may use the name, and a digest alone must give nobody the bytes.
        blocking(move || shared.name(name, image, None, Some(SCOPE.to_owned()))).await
    }
}
