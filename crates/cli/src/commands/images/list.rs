use super::view::ImagesView;
use crate::commands::{Context, now_ms};
use crate::failure::{Exit, Failure};

/// Shows the images of the server.
pub(super) async fn run(context: &Context) -> Result<Exit, Failure> {
    let images = context.api.list_images().await?.images;
    context.printer.show(&ImagesView { images, now_ms: now_ms() })?;
    Ok(Exit::Success)
}
