use super::making::watched;
use super::view::ImageView;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use std::path::Path;

/// Takes an image from the server's file system under a name.
pub(super) async fn run(context: &Context, path: &Path, name: &str) -> Result<Exit, Failure> {
    // The server has another working directory than the user.
    let absolute =
        std::path::absolute(path).map_err(|error| Failure::new(format!("cannot find {}: {error}", path.display())))?;
    let Some(text) = absolute.to_str() else {
        return Err(Failure::new(format!("{}: the name is not UTF-8", path.display())).hint("rename the file"));
    };
    let image = watched(context, name, || context.api.import_image(text, name)).await;
    let image = image.map_err(|error| {
        let failure = Failure::from(error).about(text);
        if absolute.exists() { failure } else { failure.hint("the path is one of the server's machine") }
    })?;
    context.printer.show(&ImageView { image })?;
    Ok(Exit::Success)
}
