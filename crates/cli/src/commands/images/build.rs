use super::builds::{BuildView, readable};
use crate::args::BuildArgs;
use crate::client::ApiError;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::printer::{Progress, say};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;
use warren_proto::http::{BuildAnswer, BuildImage, BuildState, BuildStatus, Visibility};

/// Time between two looks at a build.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Lines of the log that a failure shows.
const LINES_SHOWN: usize = 30;

/// Packs the folder, has it built, and waits for the end.
pub(super) async fn run(context: &Context, args: BuildArgs) -> Result<Exit, Failure> {
    let folder = args.context.clone();
    let file = folder.join(&args.file);
    if !file.is_file() {
        return Err(Failure::new(format!("there is no Dockerfile at {}", file.display())).hint("name it with --file"));
    }
    let packing = tokio::task::spawn_blocking(move || packed(&folder)).await;
    let (packed, len) = packing
        .map_err(|error| Failure::new(error.to_string()))?
        .map_err(|error| Failure::new(format!("cannot pack {}: {error}", args.context.display())))?;
    let asked = context.api.build_image(&wanted(args)).await?;
    let BuildAnswer::One(build) = asked else { return Err(Failure::new("the server's answer is not for one build")) };
    let url = build.upload_url.unwrap_or_default();
    context.api.upload_context(&url, packed, len).await?;
    context.api.start_build(&build.build_id).await?;
    let ended = watched(context, &build.build_id).await?;
    if ended.status == BuildStatus::Completed {
        context.printer.show(&BuildView(ended))?;
        return Ok(Exit::Success);
    }
    let logs = readable(&context.api.build_logs(&ended.id).await?.logs);
    let lines: Vec<&str> = logs.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].iter().for_each(|line| say(line));
    let why = ended.error_message.unwrap_or_else(|| ended.status.as_str().to_owned());
    Err(Failure::new(format!("build {} did not end well: {}", ended.id, readable(&why))))
}

fn wanted(args: BuildArgs) -> BuildImage {
    let (name, tag) = match args.name.split_once(':') {
        Some((name, tag)) => (name.to_owned(), Some(tag.to_owned())),
        None => (args.name, None),
    };
    BuildImage {
        image_name: Some(name),
        image_tag: tag,
        dockerfile_path: Some(args.file),
        team_id: args.team,
        visibility: args.public.then_some(Visibility::Public),
        build_args: args.args.into_iter().map(|pair| (pair.key, pair.value)).collect(),
        ..BuildImage::default()
    }
}

/// The folder as a gzip tar in a file without a name, and its length. What `.dockerignore` leaves out, the build leaves out.
fn packed(folder: &Path) -> io::Result<(tokio::fs::File, u64)> {
    let mut tar = tar::Builder::new(GzEncoder::new(tempfile::tempfile()?, Compression::fast()));
    tar.follow_symlinks(false);
    tar.append_dir_all(PathBuf::from("."), folder)?;
    let mut file: File = tar.into_inner()?.finish()?;
    let len = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    Ok((tokio::fs::File::from_std(file), len))
}

async fn watched(context: &Context, id: &str) -> Result<BuildState, ApiError> {
    let progress = Progress::new(&context.printer, id);
    loop {
        let state = context.api.build(id).await?;
        if state.status.is_terminal() {
            return Ok(state);
        }
        progress.step(&format!("{} {}", state.status.as_str().to_lowercase(), state.full_image_path), None, None);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
