use super::view::PublishedView;
use crate::args::PublishArgs;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::printer::Progress;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use warren_proto::http::{Checkpoint, CheckpointWord};

/// Time between two questions; the server holds its answer for a moment as well.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// Longest wait for what was published to be durable.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Questions in a row that may go wrong.
const FAULTS_MAX: u32 = 10;

/// Publishes what a sandbox made of a volume, and waits until that is durable.
pub(super) async fn run(context: &Context, args: PublishArgs) -> Result<Exit, Failure> {
    let asked = context.api.publish_volume(&args.sandbox, &args.name, args.force).await;
    let asked = asked.map_err(|error| Failure::from(error).about(&args.name))?;
    let published = if args.no_wait { asked } else { until_durable(context, asked).await? };
    context.printer.show(&PublishedView { checkpoint: published })?;
    Ok(Exit::Success)
}

async fn until_durable(context: &Context, mut checkpoint: Checkpoint) -> Result<Checkpoint, Failure> {
    let progress = Progress::new(&context.printer, "publishing");
    let id = checkpoint.id.clone();
    let began = Instant::now();
    let mut faults = 0;
    while checkpoint.state == CheckpointWord::Pending {
        if began.elapsed() > WAIT_MAX {
            return Err(Failure::new("it is not durable yet; it may still become so").about(&id));
        }
        progress.step("writing it to where it stays", None, None);
        sleep(ASK_EVERY).await;
        match context.api.get_checkpoint(&id).await {
            Ok(next) => (checkpoint, faults) = (next, 0),
            Err(error) if faults < FAULTS_MAX && error.is_lost() => faults += 1,
            Err(error) => return Err(Failure::from(error).about(&id)),
        }
    }
    match &checkpoint.error {
        Some(problem) => Err(Failure::new(format!("the publish failed: {problem}")).about(&id)),
        None => Ok(checkpoint),
    }
}
