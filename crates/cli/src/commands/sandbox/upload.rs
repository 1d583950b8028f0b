use super::outcome;
use crate::args::UploadArgs;
use crate::client::GatewayError;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::printer::{Transfer, View, human_size};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, TryStreamExt as _, stream};
use serde_json::json;
use std::io;
use std::path::Path;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Largest piece of a file in memory, bytes.
const PIECE_LEN_MAX: usize = 256 << 10;

struct UploadView {
    id: String,
    path: String,
    size: u64,
}

impl View for UploadView {
    fn table(&self) -> String {
        format!("{}:{} {}\n", self.id, crate::printer::visible(&self.path), human_size(self.size))
    }

    fn json(&self) -> serde_json::Value {
        json!({ "sandbox_id": self.id, "path": self.path, "size": self.size })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.path.clone()]
    }
}

/// Copies a file into the sandbox.
pub(super) async fn run(context: &Context, args: UploadArgs) -> Result<Exit, Failure> {
    let local = |error: io::Error| GatewayError::Local {
        action: "read",
        path: args.local_file.display().to_string(),
        problem: error.to_string(),
    };
    let (source, len) = open(&args.local_file).await.map_err(local)?;
    let gateway = context.api.gateway(&args.id).await.map_err(|error| Failure::from(error).about(&args.id))?;
    let transfer = Transfer::new(&context.printer, &args.remote_path, len);
    let counter = transfer.clone();
    let content = pieces(source).inspect_ok(move |piece| counter.add(piece.len() as u64));
    let uploaded = gateway.upload(&args.remote_path, content, len).await;
    transfer.finish();
    match uploaded {
        Ok(done) => {
            context.printer.show(&UploadView { id: args.id, path: done.path, size: done.size })?;
            Ok(Exit::Success)
        }
        Err(error) => Err(outcome::explain(context, &args.id, error).await.about(&args.remote_path)),
    }
}

/// The file, or stdin for `-`, with its length in bytes where that is known.
async fn open(path: &Path) -> io::Result<(Box<dyn AsyncRead + Send + Unpin>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(tokio::io::stdin()), None));
    }
    let file = tokio::fs::File::open(path).await?;
    let metadata = file.metadata().await?;
    if metadata.is_dir() {
        return Err(io::Error::other("it is a directory; pack it with tar first"));
    }
    let len = metadata.is_file().then_some(metadata.len());
    match len {
        // A file that grows meanwhile must not break the length that was announced.
        Some(len) => Ok((Box::new(file.take(len)), Some(len))),
        None => Ok((Box::new(file), None)),
    }
}

fn pieces<R: AsyncRead + Send + Unpin + 'static>(source: R) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold(source, async |mut source| {
        let mut piece = BytesMut::with_capacity(PIECE_LEN_MAX);
        let len = source.read_buf(&mut piece).await?;
        Ok((len > 0).then(|| (piece.freeze(), source)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_are_bounded_and_whole() {
        let content: Vec<u8> = (0..1_000_000u32).map(|i| i as u8).collect();
        let got: Vec<Bytes> = pieces(io::Cursor::new(content.clone())).try_collect().await.expect("read");
        assert!(got.len() > 1 && got.iter().all(|piece| piece.len() <= PIECE_LEN_MAX));
        assert_eq!(got.concat(), content);
    }

    #[tokio::test]
    async fn directories_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(open(dir.path()).await.is_err());
    }
}
