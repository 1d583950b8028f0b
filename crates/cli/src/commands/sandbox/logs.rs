use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::printer::View;

/// A log is an answer of its own: printed as it is.
struct LogsView(String);

impl View for LogsView {
    fn table(&self) -> String {
        self.0.clone()
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({ "logs": self.0 })
    }

    fn ids(&self) -> Vec<String> {
        self.0.lines().map(str::to_owned).collect()
    }
}

/// Shows the output of the start command.
pub(super) async fn run(context: &Context, id: &str) -> Result<Exit, Failure> {
    let logs = context.api.sandbox_logs(id).await.map_err(|error| Failure::from(error).about(id))?.logs;
    if logs.is_empty() {
        context.printer.note("no output: the start command has printed nothing");
    }
    context.printer.show(&LogsView(logs))?;
    Ok(Exit::Success)
}
