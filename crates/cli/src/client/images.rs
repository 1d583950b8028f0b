use super::{Api, ApiError, error};
use reqwest::{Method, header};
use serde::Serialize;
use std::time::Duration;
use warren_proto::http::{
    BuildAnswer, BuildImage, BuildLogs, BuildState, Builds, CollectImages, Image, ImageBuilds, ImageRemoved, Images,
    ImagesCollected, ImportImage, PullImage, StartBuild,
};

/// Longest wait for one answer about an image that is being made ready; the caller may ask again.
const IMAGE_WAIT_MAX: Duration = Duration::from_secs(3600);
/// Longest upload of a context.
const UPLOAD_WAIT_MAX: Duration = Duration::from_secs(600);

impl Api {
    /// Makes an image ready, or joins the making of it.
    pub(crate) async fn pull_image(&self, reference: &str, team_id: Option<&str>) -> Result<Image, ApiError> {
        let body = PullImage { reference: reference.to_owned(), team_id: team_id.map(str::to_owned) };
        self.make_image("pull", &body).await
    }

    /// Takes an image from the server's file system.
    pub(crate) async fn import_image(&self, path: &str, name: &str) -> Result<Image, ApiError> {
        self.make_image("import", &ImportImage { path: path.to_owned(), name: name.to_owned() }).await
    }

    /// Images on the server.
    pub(crate) async fn list_images(&self) -> Result<Images, ApiError> {
        self.get(&["images", "local"]).await
    }

    /// Removes a name; whether sandboxes use its bytes.
    pub(crate) async fn remove_image(&self, reference: &str) -> Result<bool, ApiError> {
        let request = self.request(Method::DELETE, &["images", "local"]).query(&[("reference", reference)]);
        self.answer::<ImageRemoved>(request).await.map(|removed| removed.in_use)
    }

    /// Removes images that nobody uses.
    pub(crate) async fn collect_images(&self, body: &CollectImages) -> Result<ImagesCollected, ApiError> {
        self.answer(self.request(Method::POST, &["images", "gc"]).json(body)).await
    }

    /// Pulls and conversions under way.
    pub(crate) async fn image_builds(&self) -> Result<ImageBuilds, ApiError> {
        self.get(&["images", "builds"]).await
    }

    /// Asks for a build.
    pub(crate) async fn build_image(&self, wanted: &BuildImage) -> Result<BuildAnswer, ApiError> {
        self.send(Method::POST, &["images", "build"], wanted).await
    }

    /// Uploads the context of a build to the URL that the server gave for it.
    pub(crate) async fn upload_context(&self, url: &str, context: tokio::fs::File, len: u64) -> Result<(), ApiError> {
        let bad_url = |problem: String| ApiError::Setup { problem };
        let url = reqwest::Url::parse(url).map_err(|error| bad_url(error::chain(&error)))?;
        let request = self.http.request(Method::PUT, url).timeout(UPLOAD_WAIT_MAX);
        let request =
            request.header(header::CONTENT_TYPE, "application/octet-stream").header(header::CONTENT_LENGTH, len);
        self.answer::<serde_json::Value>(request.body(reqwest::Body::from(context))).await.map(drop)
    }

    /// Puts a build in the queue.
    pub(crate) async fn start_build(&self, id: &str) -> Result<BuildState, ApiError> {
        self.send(Method::POST, &["images", "build", id, "start"], &StartBuild { context_uploaded: true }).await
    }

    /// Where a build is.
    pub(crate) async fn build(&self, id: &str) -> Result<BuildState, ApiError> {
        self.get(&["images", "build", id]).await
    }

    /// The caller's last builds.
    pub(crate) async fn builds(&self) -> Result<Builds, ApiError> {
        self.get(&["images", "build"]).await
    }

    /// What a build said.
    pub(crate) async fn build_logs(&self, id: &str) -> Result<BuildLogs, ApiError> {
        self.get(&["images", "build", id, "logs"]).await
    }

    /// Ends a build.
    pub(crate) async fn cancel_build(&self, id: &str) -> Result<BuildState, ApiError> {
        self.answer(self.request(Method::POST, &["images", "build", id, "cancel"])).await
    }

    async fn make_image(&self, how: &str, body: &impl Serialize) -> Result<Image, ApiError> {
        self.answer(self.request(Method::POST, &["images", how]).json(body).timeout(IMAGE_WAIT_MAX)).await
    }
}
