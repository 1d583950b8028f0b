//! `warren template ...`.

mod create;
mod view;
mod wait;

use super::removed::RemovedView;
use super::{Context, now_ms};
use crate::args::{RebuildArgs, TemplateCommand, TemplateListArgs};
use crate::failure::{Exit, Failure};
use crate::printer::say;
use view::{TemplateView, TemplatesView};
use warren_proto::http::Template;

/// Runs one of the commands.
pub(crate) async fn dispatch(context: &Context, command: TemplateCommand) -> Result<Exit, Failure> {
    match command {
        TemplateCommand::Create(args) => create::run(context, *args).await,
        TemplateCommand::List(args) => list(context, args).await,
        TemplateCommand::Get(args) => get(context, &args.id).await,
        TemplateCommand::Rebuild(args) => rebuild(context, args).await,
        TemplateCommand::Delete(args) => delete(context, &args.ids).await,
    }
}

async fn list(context: &Context, args: TemplateListArgs) -> Result<Exit, Failure> {
    let team_id = args.team_id.as_ref().or(context.team_id.as_ref()).map(String::as_str);
    let templates = context.api.templates(team_id).await?.templates;
    context.printer.show(&TemplatesView { templates, now_ms: now_ms() })?;
    Ok(Exit::Success)
}

async fn get(context: &Context, id: &str) -> Result<Exit, Failure> {
    let template = context.api.template(id).await.map_err(|error| Failure::from(error).about(id))?;
    context.printer.show(&TemplateView { template })?;
    Ok(Exit::Success)
}

async fn rebuild(context: &Context, args: RebuildArgs) -> Result<Exit, Failure> {
    let id = &args.id;
    let template = context.api.rebuild_template(id).await.map_err(|error| Failure::from(error).about(id))?;
    show_made(context, template, args.wait).await
}

/// Shows one that is being made, once it is ready if that is waited for.
async fn show_made(context: &Context, mut template: Template, waits: bool) -> Result<Exit, Failure> {
    if waits {
        template = wait::until_ready(context, template).await?;
    }
    context.printer.show(&TemplatesView { templates: vec![template.clone()], now_ms: now_ms() })?;
    if !waits {
        context.printer.note(&format!("it is being made; `warren template get {}` says how far it is", template.id));
    }
    Ok(Exit::Success)
}

/// Deletes templates; fails if one of them could not be deleted, after having tried them all.
async fn delete(context: &Context, ids: &[String]) -> Result<Exit, Failure> {
    let mut removed = RemovedView::default();
    let mut exit = Exit::Success;
    for id in ids {
        match context.api.delete_template(id).await {
            Ok(_) => removed.add(id.clone(), ""),
            Err(error) => {
                Failure::from(error).about(id).lines().iter().for_each(|line| say(line));
                exit = Exit::Failure;
            }
        }
    }
    context.printer.show(&removed)?;
    Ok(exit)
}
