//! Builds of owned images: list, logs, cancel.

use crate::commands::{Context, now_ms};
use crate::failure::{Exit, Failure};
use crate::printer::{Table, View, short_duration, visible};
use serde_json::{Value, json};
use warren_proto::http::BuildState;

/// Builds of the caller.
struct BuildsView {
    builds: Vec<BuildState>,
    /// For ages, milliseconds since 1970.
    now_ms: u64,
}

impl View for BuildsView {
    fn table(&self) -> String {
        let mut table = Table::new(&["BUILD", "STATUS", "IMAGE", "AGE"]);
        for build in &self.builds {
            let age = short_duration(self.now_ms.saturating_sub(build.created_at.as_ms()) / 1000);
            table.row([build.id.clone(), build.status.as_str().to_owned(), build.full_image_path.clone(), age]);
        }
        table.render()
    }

    fn json(&self) -> Value {
        json!({ "builds": self.builds })
    }

    fn ids(&self) -> Vec<String> {
        self.builds.iter().map(|build| build.id.clone()).collect()
    }
}

/// One build.
pub(super) struct BuildView(pub(super) BuildState);

impl View for BuildView {
    fn table(&self) -> String {
        let build = &self.0;
        format!("{}\n", visible(&format!("{}  {}  {}", build.id, build.status.as_str(), build.full_image_path)))
    }

    fn json(&self) -> Value {
        json!(self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.id.clone()]
    }
}

/// Shows the caller's last builds.
pub(super) async fn list(context: &Context) -> Result<Exit, Failure> {
    let builds = context.api.builds().await?.builds;
    context.printer.show(&BuildsView { builds, now_ms: now_ms() })?;
    Ok(Exit::Success)
}

/// Shows what a build said.
pub(super) async fn logs(context: &Context, id: &str) -> Result<Exit, Failure> {
    let said = context.api.build_logs(id).await.map_err(|error| Failure::from(error).about(id))?;
    match context.printer.is_json() {
        true => context.printer.text(&format!("{}\n", json!(said)))?,
        false => context.printer.text(&readable(&said.logs))?,
    }
    Ok(Exit::Success)
}

/// Ends a build.
pub(super) async fn cancel(context: &Context, id: &str) -> Result<Exit, Failure> {
    let build = context.api.cancel_build(id).await.map_err(|error| Failure::from(error).about(id))?;
    context.printer.show(&BuildView(build))?;
    Ok(Exit::Success)
}

/// What a build said, without what would steer a terminal.
pub(super) fn readable(logs: &str) -> String {
    logs.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_does_not_steer_the_terminal() {
        assert_eq!(readable("\u{1b}[31mred\u{7}\n\tstep\r\n"), "[31mred\n\tstep\n");
    }
}
