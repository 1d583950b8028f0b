use super::{Api, ApiError};
use reqwest::Method;
use warren_proto::http::{Checkpoint, NewVolume, PublishVolume, Volume, VolumeList};

const VOLUMES: [&str; 2] = ["sandbox", "volumes"];

impl Api {
    /// Makes an empty volume.
    pub(crate) async fn create_volume(&self, new: &NewVolume) -> Result<Volume, ApiError> {
        self.send(Method::POST, &VOLUMES, new).await
    }

    /// A page of the volumes of the caller or of a team.
    pub(crate) async fn list_volumes(
        &self,
        page: u32,
        per_page: u32,
        team_id: Option<&str>,
    ) -> Result<VolumeList, ApiError> {
        let query = [("page", Some(page.to_string())), ("per_page", Some(per_page.to_string()))];
        let request = self.request(Method::GET, &VOLUMES).query(&query).query(&[("team_id", team_id)]);
        self.answer(request).await
    }

    /// One volume.
    pub(crate) async fn get_volume(&self, name: &str, team_id: Option<&str>) -> Result<Volume, ApiError> {
        let [sandbox, volumes] = VOLUMES;
        self.answer(self.request(Method::GET, &[sandbox, volumes, name]).query(&[("team_id", team_id)])).await
    }

    /// Publishes what a sandbox made of a volume; it is durable a little later.
    pub(crate) async fn publish_volume(&self, sandbox: &str, name: &str, force: bool) -> Result<Checkpoint, ApiError> {
        self.send(Method::POST, &["sandbox", sandbox, "volumes", name, "publish"], &PublishVolume { force }).await
    }

    /// Deletes a volume that no sandbox has.
    pub(crate) async fn delete_volume(&self, name: &str, team_id: Option<&str>) -> Result<(), ApiError> {
        let [sandbox, volumes] = VOLUMES;
        let request = self.request(Method::DELETE, &[sandbox, volumes, name]).query(&[("team_id", team_id)]);
        self.answer::<serde_json::Value>(request).await.map(drop)
    }
}
