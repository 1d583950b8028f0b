use super::{Api, ApiError};
use reqwest::Method;
use warren_proto::http::{CheckImage, ImageCheck, NewRegistryCredential, RegistryCredential, RegistryCredentials};

const CREDENTIALS: [&str; 2] = ["registry", "credentials"];

impl Api {
    /// Saves a login, in place of the one for the same registry.
    pub(crate) async fn save_login(&self, login: &NewRegistryCredential) -> Result<RegistryCredential, ApiError> {
        self.send(Method::PUT, &CREDENTIALS, login).await
    }

    /// Saved logins of the caller or of a team.
    pub(crate) async fn logins(&self, team_id: Option<&str>) -> Result<RegistryCredentials, ApiError> {
        self.answer(self.request(Method::GET, &CREDENTIALS).query(&[("teamId", team_id)])).await
    }

    /// Removes a saved login.
    pub(crate) async fn remove_login(&self, server: &str, team_id: Option<&str>) -> Result<(), ApiError> {
        let query = [("server", Some(server)), ("teamId", team_id)];
        let request = self.request(Method::DELETE, &CREDENTIALS).query(&query);
        self.answer::<RegistryCredentials>(request).await.map(drop)
    }

    /// Whether an image can be had.
    pub(crate) async fn check_image(&self, asked: &CheckImage) -> Result<ImageCheck, ApiError> {
        self.send(Method::POST, &["registry", "check-image"], asked).await
    }
}
