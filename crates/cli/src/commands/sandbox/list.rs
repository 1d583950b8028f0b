use super::view::ListView;
use crate::args::ListArgs;
use crate::commands::{Context, now_ms};
use crate::failure::{Exit, Failure};

/// Shows one page, oldest first.
pub(super) async fn run(context: &Context, args: ListArgs) -> Result<Exit, Failure> {
    let mut list = context.api.list_sandboxes(&query(args, context.team_id.clone())).await?;
    list.sandboxes.sort_by_key(|sandbox| sandbox.created_at);
    context.printer.show(&ListView { list, now_ms: now_ms() })?;
    Ok(Exit::Success)
}

fn query(args: ListArgs, team_id: Option<String>) -> Vec<(&'static str, String)> {
    let active = !args.all && args.status.is_none();
    let mut query =
        vec![("page", args.page.to_string()), ("per_page", args.num.to_string()), ("is_active", active.to_string())];
    query.extend(args.team_id.or(team_id).map(|team| ("team_id", team)));
    query.extend(args.status.map(|status| ("status", status.to_uppercase())));
    query.extend(args.label.into_iter().map(|label| ("labels", label)));
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> ListArgs {
        ListArgs { status: None, label: vec!["a".into(), "b".into()], page: 2, num: 5, all: false, team_id: None }
    }

    #[test]
    fn ended_sandboxes_are_shown_when_asked_for() {
        let has = |args, pair: (&'static str, &str)| query(args, None).contains(&(pair.0, pair.1.to_owned()));
        assert!(has(args(), ("is_active", "true")) && has(args(), ("labels", "b")) && has(args(), ("page", "2")));
        assert!(has(ListArgs { all: true, ..args() }, ("is_active", "false")));
        let errors = ListArgs { status: Some("error".into()), ..args() };
        assert!(has(errors.clone(), ("is_active", "false")) && has(errors, ("status", "ERROR")));
    }
}
