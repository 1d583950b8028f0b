use super::outcome;
use crate::args::DownloadArgs;
use crate::client::GatewayError;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::printer::{Transfer, View, human_size};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, pin_mut};
use serde_json::json;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Mode of a new file before the user's umask.
const FILE_MODE: u32 = 0o666;

struct DownloadView {
    path: PathBuf,
    size: u64,
}

impl View for DownloadView {
    fn table(&self) -> String {
        format!("{} {}\n", crate::printer::visible(&self.path.display().to_string()), human_size(self.size))
    }

    fn json(&self) -> serde_json::Value {
        json!({ "path": self.path.display().to_string(), "size": self.size })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.path.display().to_string()]
    }
}

/// Copies a file out of the sandbox: whole or not at all.
pub(super) async fn run(context: &Context, args: DownloadArgs) -> Result<Exit, Failure> {
    let gateway = context.api.gateway(&args.id).await.map_err(|error| Failure::from(error).about(&args.id))?;
    let done = match gateway.download(&args.remote_path).await {
        Ok((len, content)) => {
            let transfer = Transfer::new(&context.printer, &args.remote_path, len);
            let content = content.inspect(|piece| transfer.add(piece.as_ref().map_or(0, |piece| piece.len() as u64)));
            let done = save(content, &args).await;
            transfer.finish();
            done
        }
        Err(error) => Err(error),
    };
    match done {
        Ok(Some(view)) => context.printer.show(&view)?,
        Ok(None) => {}
        Err(error @ GatewayError::Local { .. }) => return Err(error.into()),
        Err(error) => return Err(outcome::explain(context, &args.id, error).await.about(&args.remote_path)),
    }
    Ok(Exit::Success)
}

/// Writes the content to its place; `None` if that was stdout.
async fn save(
    content: impl Stream<Item = Result<Bytes, GatewayError>>,
    args: &DownloadArgs,
) -> Result<Option<DownloadView>, GatewayError> {
    if args.local_file == Path::new("-") {
        copy(content, &mut io::stdout().lock(), Path::new("stdout")).await?;
        return Ok(None);
    }
    let path = target(&args.local_file, &args.remote_path);
    let failed = |error: io::Error| cannot_write(&path, &error);
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".warren-")
        .permissions(Permissions::from_mode(FILE_MODE))
        .tempfile_in(parent)
        .map_err(failed)?;
    let size = copy(content, &mut file, &path).await?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(Some(DownloadView { path, size }))
}

/// A directory as target means a file of the same name in it.
fn target(local: &Path, remote: &str) -> PathBuf {
    let name = remote.rsplit('/').find(|part| !matches!(*part, "" | "." | ".."));
    match name {
        Some(name) if local.is_dir() => local.join(name),
        _ => local.to_owned(),
    }
}

async fn copy(
    content: impl Stream<Item = Result<Bytes, GatewayError>>,
    out: &mut impl Write,
    path: &Path,
) -> Result<u64, GatewayError> {
    pin_mut!(content);
    let mut size = 0;
    while let Some(piece) = content.next().await {
        let piece = piece?;
        out.write_all(&piece).map_err(|error| cannot_write(path, &error))?;
        size += piece.len() as u64;
    }
    out.flush().map_err(|error| cannot_write(path, &error))?;
    Ok(size)
}

fn cannot_write(path: &Path, error: &io::Error) -> GatewayError {
    GatewayError::Local { action: "write", path: path.display().to_string(), problem: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(local: PathBuf) -> DownloadArgs {
        DownloadArgs { id: "s1".into(), remote_path: "/etc/x.conf".into(), local_file: local }
    }

    #[tokio::test]
    async fn a_broken_download_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        let broken = GatewayError::Cut { problem: "test".into() };
        let content = futures_util::stream::iter([Ok(Bytes::from("half")), Err(broken)]);
        assert!(save(content, &args(dir.path().join("x"))).await.is_err());
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
    }

    #[tokio::test]
    async fn a_directory_takes_the_name_of_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let content = futures_util::stream::iter([Ok(Bytes::from("a")), Ok(Bytes::from("b"))]);
        let view = save(content, &args(dir.path().to_owned())).await.expect("saved").expect("a file");
        assert_eq!((view.path.clone(), view.size), (dir.path().join("x.conf"), 2));
        assert_eq!(std::fs::read(&view.path).expect("read"), b"ab");
        assert_eq!(target(dir.path(), "/a/.."), dir.path().join("a"));
    }
}
