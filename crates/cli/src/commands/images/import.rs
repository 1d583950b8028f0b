use super::making::watched;
use super::view::ImageView;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use std::path::Path;

/// What to do about a file that cannot be taken; the remedies for images of registries would mislead.
fn hint(code: Option<&str>) -> Option<&'static str> {
    match code? {
        "image_not_found" => Some("the path is one of the server's machine: is it there?"),
        "image_access_denied" => Some("let the server's user read it"),
        "image_bad_content" => {
            Some("give an OCI layout (directory or tar), what `docker save` wrote, or the tar of a root file system")
        }
        _ => None,
    }
}

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
        let failure = match hint(error.code()) {
            Some(hint) => Failure::new(error.to_string()).hint(hint),
            None => Failure::from(error),
        };
        failure.about(text)
    })?;
    context.printer.show(&ImageView { image })?;
    Ok(Exit::Success)
}
