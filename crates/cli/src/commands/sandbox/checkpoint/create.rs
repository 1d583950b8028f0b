use super::view::CheckpointView;
use crate::args::CreateCheckpointArgs;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::printer::Progress;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use warren_proto::http::{Checkpoint, CheckpointWord};

/// Time between two questions; the server holds its answer for a moment as well.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// Longest wait for a durable checkpoint: an object store may be slow.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Questions in a row that may go wrong.
const FAULTS_MAX: u32 = 10;

/// Freezes the disk of a sandbox, and shows the checkpoint.
pub(super) async fn run(context: &Context, args: CreateCheckpointArgs) -> Result<Exit, Failure> {
    let asked = context.api.create_checkpoint(&args.id).await;
    let mut checkpoint = asked.map_err(|error| Failure::from(error).about(&args.id))?;
    if args.wait {
        checkpoint = until_settled(context, checkpoint).await?;
    }
    let exit = if checkpoint.state == CheckpointWord::Failed { Exit::Failure } else { Exit::Success };
    context.printer.show(&CheckpointView { checkpoint })?;
    Ok(exit)
}

/// Waits until a checkpoint, also one of a volume, is durable or has failed.
pub(crate) async fn until_settled(context: &Context, mut checkpoint: Checkpoint) -> Result<Checkpoint, Failure> {
    let progress = Progress::new(&context.printer, "keeping");
    let (began, id) = (Instant::now(), checkpoint.id.clone());
    let mut faults = 0;
    while checkpoint.state == CheckpointWord::Pending {
        if began.elapsed() > WAIT_MAX {
            let hint = format!("look again with `warren sandbox checkpoint get {id}`");
            return Err(Failure::new("it is not durable yet").about(&id).hint(hint));
        }
        progress.step(&format!("{id} is PENDING"), None, None);
        match context.api.get_checkpoints(vec![id.clone()]).await {
            Ok(answer) => {
                faults = 0;
                let missing = || Failure::new("the server does not know it any more").about(&id);
                checkpoint = answer.checkpoints.into_iter().next().ok_or_else(missing)?;
            }
            Err(error) if faults < FAULTS_MAX && error.is_lost() => faults += 1,
            Err(error) => return Err(Failure::from(error).about(&id)),
        }
        sleep(ASK_EVERY).await;
    }
    Ok(checkpoint)
}
