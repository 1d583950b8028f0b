use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::printer::{View, say, visible};
use serde_json::json;

struct RemovedView(Vec<String>);

impl View for RemovedView {
    fn table(&self) -> String {
        self.0.iter().map(|reference| format!("{} removed\n", visible(reference))).collect()
    }

    fn json(&self) -> serde_json::Value {
        json!({ "removed": self.0 })
    }

    fn ids(&self) -> Vec<String> {
        self.0.clone()
    }
}

/// Removes names; fails if one of them could not be removed, after having tried them all.
pub(super) async fn run(context: &Context, references: &[String]) -> Result<Exit, Failure> {
    let mut removed = RemovedView(Vec::new());
    let mut exit = Exit::Success;
    for reference in references {
        match context.api.remove_image(reference).await {
            Ok(()) => removed.0.push(reference.clone()),
            Err(error) => {
                Failure::from(error).about(reference).lines().iter().for_each(|line| say(line));
                exit = Exit::Failure;
            }
        }
    }
    context.printer.show(&removed)?;
    Ok(exit)
}
