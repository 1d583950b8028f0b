use super::{Api, ApiError};
use reqwest::Method;
use warren_proto::http::{NewTemplate, Template, Templates};

impl Api {
    /// Has a template made.
    pub(crate) async fn create_template(&self, wanted: &NewTemplate) -> Result<Template, ApiError> {
        self.send(Method::POST, &["templates"], wanted).await
    }

    /// Templates of the caller, or of a team.
    pub(crate) async fn templates(&self, team_id: Option<&str>) -> Result<Templates, ApiError> {
        self.answer(self.request(Method::GET, &["templates"]).query(&[("teamId", team_id)])).await
    }

    /// One template.
    pub(crate) async fn template(&self, id: &str) -> Result<Template, ApiError> {
        self.get(&["templates", id]).await
    }

    /// Has a template made anew.
    pub(crate) async fn rebuild_template(&self, id: &str) -> Result<Template, ApiError> {
        self.answer(self.request(Method::POST, &["templates", id, "rebuild"])).await
    }

    /// Lets a template go.
    pub(crate) async fn delete_template(&self, id: &str) -> Result<Template, ApiError> {
        self.answer(self.request(Method::DELETE, &["templates", id])).await
    }
}
