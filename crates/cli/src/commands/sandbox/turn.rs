//! What a sandbox is put through while it lives: reset, pause, resume.

use super::view::DetailView;
use crate::args::ResetArgs;
use crate::client::ApiError;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::printer::{Progress, View, visible};
use warren_model::Status;
use warren_proto::http::Sandbox;

/// A sandbox after its turn, in one line.
struct TurnView(DetailView);

impl View for TurnView {
    fn table(&self) -> String {
        let sandbox = &self.0.sandbox;
        let status = Status::from(sandbox.status).as_str();
        format!("{}  {status}  generation {}\n", visible(&sandbox.id), sandbox.generation)
    }

    fn json(&self) -> serde_json::Value {
        self.0.json()
    }

    fn ids(&self) -> Vec<String> {
        self.0.ids()
    }
}

/// Puts a sandbox back to a snapshot of its own.
pub(super) async fn reset(context: &Context, args: ResetArgs) -> Result<Exit, Failure> {
    turn(context, &args.id, "resetting", context.api.reset_sandbox(&args.id, args.snapshot)).await
}

/// Pauses a running sandbox.
pub(super) async fn pause(context: &Context, id: &str) -> Result<Exit, Failure> {
    turn(context, id, "pausing", context.api.pause_sandbox(id)).await
}

/// Lets a paused sandbox go on.
pub(super) async fn resume(context: &Context, id: &str) -> Result<Exit, Failure> {
    turn(context, id, "resuming", context.api.resume_sandbox(id)).await
}

async fn turn(
    context: &Context,
    id: &str,
    doing: &str,
    call: impl Future<Output = Result<Sandbox, ApiError>>,
) -> Result<Exit, Failure> {
    let turned = Progress::during(&context.printer, &format!("{doing} {id}"), call).await;
    let sandbox = turned.map_err(|error| Failure::from(error).about(id))?;
    context.printer.show(&TurnView(DetailView { sandbox }))?;
    Ok(Exit::Success)
}
