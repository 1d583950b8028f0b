use crate::reconcile::driver::chain;
use crate::store::StoreError;
use warren_proto::node::ImageError;

/// Why a build ends without an image. `code` is stable: `image_...` as in `docs/errors.md`, or one of those in `docs/images.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Fault { code: code.to_owned(), message: message.into() }
    }

    /// Whether what the author wrote is at fault, so that the machine is as good as before.
    pub(super) fn is_authors(&self) -> bool {
        const CODES: [&str; 5] = [
            "build_failed",
            "image_not_found",
            "image_access_denied",
            "image_bad_reference",
            "image_wrong_architecture",
        ];
        CODES.contains(&self.code.as_str())
    }
}

impl From<ImageError> for Fault {
    fn from(error: ImageError) -> Self {
        match error.code {
            "build_failed" => Fault::new("build_failed", error.message),
            code => Fault::new(&format!("image_{code}"), error.to_string()),
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = chain(&error), "build failed");
        Fault::new("internal", "internal error; the server's log has the cause")
    }
}
