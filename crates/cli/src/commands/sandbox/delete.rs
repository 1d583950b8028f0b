use super::ask::confirmed;
use crate::args::DeleteArgs;
use crate::client::ApiError;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::printer::{View, say};
use serde_json::{Value, json};
use warren_proto::http::{BulkDelete, BulkDeleteAnswer, BulkDeleteFailure, limits};

/// What became of each.
#[derive(Debug, Default)]
struct DeleteView {
    succeeded: Vec<String>,
    failed: Vec<BulkDeleteFailure>,
}

impl View for DeleteView {
    fn table(&self) -> String {
        self.succeeded.iter().map(|id| format!("{} deleted\n", crate::printer::visible(id))).collect()
    }

    fn json(&self) -> Value {
        json!({ "succeeded": self.succeeded, "failed": self.failed })
    }

    fn ids(&self) -> Vec<String> {
        self.succeeded.clone()
    }
}

/// Ends sandboxes; fails if one of them could not be ended.
pub(super) async fn run(context: &Context, args: DeleteArgs) -> Result<Exit, Failure> {
    let mut view = DeleteView::default();
    if args.ids.is_empty() {
        let Some(which) = selection(context, &args).await? else { return Ok(Exit::Success) };
        view.take(context.api.delete_sandboxes(&which).await?);
    } else if let [id] = args.ids.as_slice() {
        context.api.delete_sandbox(id).await.map_err(|error| Failure::from(error).about(id))?;
        view.succeeded.push(id.clone());
    } else {
        for ids in args.ids.chunks(limits::BATCH_MAX) {
            let which = BulkDelete { sandbox_ids: Some(ids.to_vec()), ..BulkDelete::default() };
            view.take(context.api.delete_sandboxes(&which).await?);
        }
    }
    context.printer.show(&view)?;
    for failure in &view.failed {
        let lines = Failure::new(&failure.error).about(&failure.sandbox_id).lines();
        lines.iter().for_each(|line| say(line));
    }
    Ok(if view.failed.is_empty() { Exit::Success } else { Exit::Failure })
}

impl DeleteView {
    fn take(&mut self, answer: BulkDeleteAnswer) {
        self.succeeded.extend(answer.succeeded);
        self.failed.extend(answer.failed);
    }
}

/// Which sandboxes `--all` and `--label` mean; `None` if there are none or the user said no.
async fn selection(context: &Context, args: &DeleteArgs) -> Result<Option<BulkDelete>, Failure> {
    let team_id = args.team_id.clone().or_else(|| context.team_id.clone());
    let user_id = if args.all_users { None } else { Some(context.api.whoami().await?.data.id) };
    let count = count(context, args, &team_id, &user_id).await?;
    if count == 0 {
        context.printer.note("no sandbox matches");
        return Ok(None);
    }
    if !args.yes && !confirmed(&format!("Delete {count} sandboxes?"))? {
        context.printer.note("nothing was deleted");
        return Ok(None);
    }
    let labels = (!args.label.is_empty()).then(|| args.label.clone());
    Ok(Some(BulkDelete { sandbox_ids: None, labels, team_id, user_id, all_users: args.all_users }))
}

async fn count(
    context: &Context,
    args: &DeleteArgs,
    team_id: &Option<String>,
    user_id: &Option<String>,
) -> Result<u64, ApiError> {
    let mut query = vec![("page", "1".to_owned()), ("per_page", "1".to_owned()), ("is_active", "true".to_owned())];
    query.extend(team_id.clone().map(|id| ("team_id", id)));
    query.extend(user_id.clone().map(|id| ("user_id", id)));
    query.extend(args.label.iter().map(|label| ("labels", label.clone())));
    context.api.list_sandboxes(&query).await.map(|list| list.total)
}
