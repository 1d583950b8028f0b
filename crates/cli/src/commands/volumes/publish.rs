use super::view::PublishedView;
use crate::args::PublishArgs;
use crate::commands::Context;
use crate::commands::sandbox::until_settled;
use crate::failure::{Exit, Failure};

/// Publishes what a sandbox made of a volume, and waits until that is durable.
pub(super) async fn run(context: &Context, args: PublishArgs) -> Result<Exit, Failure> {
    let asked = context.api.publish_volume(&args.sandbox, &args.name, args.force).await;
    let asked = asked.map_err(|error| Failure::from(error).about(&args.name))?;
    let checkpoint = if args.no_wait { asked } else { until_settled(context, asked).await? };
    if let Some(problem) = &checkpoint.error {
        return Err(Failure::new(format!("the publish failed: {problem}")).about(&checkpoint.id));
    }
    context.printer.show(&PublishedView { checkpoint })?;
    Ok(Exit::Success)
}
