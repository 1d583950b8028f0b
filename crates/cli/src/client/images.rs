use super::{Api, ApiError};
use reqwest::Method;
use serde::Serialize;
use std::time::Duration;
use warren_proto::http::{
    CollectImages, Image, ImageBuilds, ImageRemoved, Images, ImagesCollected, ImportImage, PullImage,
};

/// Longest wait for one answer about an image that is being made ready; the caller may ask again.
const IMAGE_WAIT_MAX: Duration = Duration::from_secs(3600);

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

    async fn make_image(&self, how: &str, body: &impl Serialize) -> Result<Image, ApiError> {
        self.answer(self.request(Method::POST, &["images", how]).json(body).timeout(IMAGE_WAIT_MAX)).await
    }
}
