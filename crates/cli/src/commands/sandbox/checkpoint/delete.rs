use crate::args::DeleteCheckpointsArgs;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::printer::{View, say, visible};
use serde_json::{Value, json};
use warren_proto::http::CheckpointError;

/// What became of each.
#[derive(Debug, Default)]
struct DeletedView {
    deleted: Vec<String>,
    failures: Vec<Failure>,
}

impl View for DeletedView {
    fn table(&self) -> String {
        self.deleted.iter().map(|id| format!("{} deleted\n", visible(id))).collect()
    }

    fn json(&self) -> Value {
        let errors: Vec<_> = self.failures.iter().map(|failure| failure.lines().join("\n")).collect();
        json!({ "deleted": self.deleted, "errors": errors })
    }

    fn ids(&self) -> Vec<String> {
        self.deleted.clone()
    }
}

/// Deletes checkpoints; fails if one of them could not be deleted.
pub(super) async fn run(context: &Context, args: DeleteCheckpointsArgs) -> Result<Exit, Failure> {
    let mut view = DeletedView::default();
    if let Some(sandbox) = &args.sandbox {
        let answer = context.api.delete_checkpoints(sandbox).await;
        let answer = answer.map_err(|error| Failure::from(error).about(sandbox))?;
        view.deleted = answer.deleted;
        let failure = |error: CheckpointError| Failure::new(&error.message).about(&error.checkpoint_id);
        view.failures = answer.errors.into_iter().map(failure).collect();
    }
    for id in args.ids {
        match context.api.delete_checkpoint(&id).await {
            Ok(_) => view.deleted.push(id),
            Err(error) => view.failures.push(Failure::from(error).about(&id)),
        }
    }
    context.printer.show(&view)?;
    for failure in &view.failures {
        failure.lines().iter().for_each(|line| say(line));
    }
    Ok(if view.failures.is_empty() { Exit::Success } else { Exit::Failure })
}
