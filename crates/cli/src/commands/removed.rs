//! What a command removed.

use crate::printer::{View, visible};
use serde_json::json;

/// Names that are gone, each with what else there is to say of it.
#[derive(Debug, Default)]
pub(super) struct RemovedView(Vec<(String, &'static str)>);

impl RemovedView {
    /// Adds one.
    pub(super) fn add(&mut self, name: String, note: &'static str) {
        self.0.push((name, note));
    }
}

impl View for RemovedView {
    fn table(&self) -> String {
        self.0.iter().map(|(name, note)| format!("{} removed{note}\n", visible(name))).collect()
    }

    fn json(&self) -> serde_json::Value {
        json!({ "removed": self.ids() })
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }
}
