use crate::printer::{Table, View, visible};
use serde_json::{Value, json};
use warren_proto::http::{ImageCheck, RegistryCredential};

/// Saved logins.
#[derive(Debug)]
pub(super) struct LoginsView {
    pub(super) logins: Vec<RegistryCredential>,
}

/// Whether an image can be had.
#[derive(Debug)]
pub(super) struct CheckView {
    pub(super) reference: String,
    pub(super) check: ImageCheck,
}

impl View for LoginsView {
    fn table(&self) -> String {
        let mut table = Table::new(&["REGISTRY", "USER", "OWNER", "SAVED"]);
        for login in &self.logins {
            let owner = login.team_id.as_ref().map_or("you".to_owned(), |team| format!("team {team}"));
            table.row([login.server.clone(), login.username.clone(), owner, login.updated_at.to_string()]);
        }
        table.render()
    }

    fn json(&self) -> Value {
        json!({ "credentials": self.logins })
    }

    fn ids(&self) -> Vec<String> {
        self.logins.iter().map(|login| login.server.clone()).collect()
    }
}

impl View for CheckView {
    fn table(&self) -> String {
        format!("{}\n", visible(&format!("{}  accessible  {}", self.reference, self.digest())))
    }

    fn json(&self) -> Value {
        json!(self.check)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.digest().to_owned()]
    }
}

impl CheckView {
    fn digest(&self) -> &str {
        self.check.digest.as_deref().unwrap_or_default()
    }
}
