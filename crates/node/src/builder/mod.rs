//! Builds Dockerfiles in a sandbox of an image that has Docker: context in, output out, archive out, all by the guest's own protocol.

mod archive;
mod exec;
mod guest;
mod log;

pub(crate) use exec::run;
pub(crate) use guest::Guest;

use crate::sandbox::Handle;
use crate::shim_client::ShimClient;
use bytes::Bytes;
use std::time::Duration;
use warren_proto::node::{BuildOrder, ImageError, limits};

/// The script that runs in the guest.
const SCRIPT: &str = include_str!("build.sh");
/// Where everything of a build lies in the guest.
const FOLDER: &str = "/var/lib/warren-build";
/// Longest time for the script's upload and for cleaning up.
const SMALL_WAIT: Duration = Duration::from_secs(60);

/// Builds and leaves the result at `order.archive`.
pub(crate) async fn build(handle: &Handle, shim: ShimClient, order: &BuildOrder) -> Result<(), ImageError> {
    // Counts as use of the sandbox until the end.
    let _operation = handle.activity.begin();
    let error = |code: &'static str, message: String| ImageError { reference: order.name.clone(), code, message };
    let failed = |message: String| error("failed", message);
    let guest = Guest::new(shim);
    let script = format!("{FOLDER}/build.sh");
    let small = tokio::time::timeout(SMALL_WAIT, guest.put(&script, Bytes::from_static(SCRIPT.as_bytes())));
    small.await.map_err(|_| failed("the builder does not answer".to_owned()))?.map_err(failed)?;
    guest.put_file(&format!("{FOLDER}/context.tar.gz"), &order.context).await.map_err(failed)?;
    let mut log = log::Log::open(&order.log, limits::BUILD_LOG_LEN_MAX);
    let ended = exec::run(&guest, exec::words(&script, order), |piece| log.add(piece)).await;
    let code = ended.map_err(failed)?;
    if code != 0 {
        return Err(error(
            "build_failed",
            format!("the build ended with exit code {code}; its last words:\n{}", log.tail()),
        ));
    }
    archive::fetch(&guest, &format!("{FOLDER}/image.tar"), &order.archive).await.map_err(failed)?;
    // The cache stays; a result that stays would only take its room.
    let removed = exec::run(&guest, vec!["/bin/rm".into(), "-f".into(), format!("{FOLDER}/image.tar")], |_| {});
    let _ = tokio::time::timeout(SMALL_WAIT, removed).await;
    Ok(())
}
