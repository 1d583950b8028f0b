use crate::commands::Context;
use crate::commands::removed::RemovedView;
use crate::failure::{Exit, Failure};
use crate::printer::say;

/// Removes names; fails if one of them could not be removed, after having tried them all.
pub(super) async fn run(context: &Context, references: &[String]) -> Result<Exit, Failure> {
    let mut removed = RemovedView::default();
    let mut exit = Exit::Success;
    for reference in references {
        match context.api.remove_image(reference).await {
            Ok(false) => removed.add(reference.clone(), ""),
            Ok(true) => removed.add(reference.clone(), "; its bytes stay until the sandboxes that use it have ended"),
            Err(error) => {
                Failure::from(error).about(reference).lines().iter().for_each(|line| say(line));
                exit = Exit::Failure;
            }
        }
    }
    context.printer.show(&removed)?;
    Ok(exit)
}
