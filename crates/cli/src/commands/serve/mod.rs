//! `warren serve`: the control plane and this machine's node in one process.

mod connections;
mod error;
mod greeting;
mod lock;
mod logging;
mod open_files;
mod registries;
mod sys;
mod tls;

use crate::args::ServeArgs;
use crate::failure::{Exit, Failure};
use crate::places;
use axum::Router;
use connections::Connections;
use error::ServeError;
use lock::DataDirLock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use warren_control::{App, Config, OverTls};
use warren_node::{Node, NodeConfig, SharedNode};

/// Longest wait at the end for requests that are under way.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Path of the data plane on this server.
const GATEWAY_PATH: &str = "/gw";

/// Serves until it is asked to end. Sandboxes outlive it.
pub(crate) fn run(args: ServeArgs) -> Result<Exit, Failure> {
    sys::limit_arenas();
    logging::start(args.log_format);
    let data_dir = places::data_dir(args.data_dir.clone(), &places::process_env, places::is_root());
    let data_dir = std::path::absolute(&data_dir).map_err(|source| ServeError::DataDir { path: data_dir, source })?;
    let lock = DataDirLock::take(&data_dir)?;
    open_files::raise();
    // Shims that are locked in read images and templates as another user; what is secret is closed by its own mode, and by the folder's.
    rustix::process::umask(rustix::fs::Mode::from(0o022));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| ServeError::System { action: "start threads", source })?;
    let served = runtime.block_on(serve(args, data_dir));
    // Whatever still runs ends with the process, as it would at a kill. To drop it in order would let go the leases of sandboxes that go on.
    std::mem::forget(runtime);
    served?;
    drop(lock);
    Ok(Exit::Success)
}

async fn serve(args: ServeArgs, data_dir: PathBuf) -> Result<(), ServeError> {
    // What can be refused at once is tried before anything that takes time.
    let tls = tls::acceptor(args.tls_cert.as_deref(), args.tls_key.as_deref())?;
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.map_err(|source| ServeError::Listen { address: args.listen, source })?;
    let address = listener.local_addr().map_err(|source| ServeError::Listen { address: args.listen, source })?;
    if tls.is_none() && !address.ip().is_loopback() {
        tracing::warn!(%address, "without --tls-cert, API keys and files cross the network in clear");
    }
    let node = Node::open(node_config(&args, &data_dir)?).await.map_err(Box::new)?;
    let app = App::open(&data_dir, Arc::new(SharedNode(node.clone())), control_config(&args)).await?;
    greeting::print(&greeting::Greeting { address, tls: tls.is_some(), data_dir: &data_dir, accel: node.accel() });
    let router = router(&node, &app, tls.is_some());
    let connections = Connections::new(router, tls);
    let ended = until_asked_to_end(&connections, listener).await;
    tracing::info!("ending; sandboxes keep running, and the next start finds them again");
    connections.drain(DRAIN_MAX).await;
    app.shutdown().await;
    ended
}

async fn until_asked_to_end(connections: &Connections, listener: TcpListener) -> Result<(), ServeError> {
    let failed = |source| ServeError::System { action: "listen for signals", source };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::select! {
        () = connections.accept(listener) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

fn router(node: &Arc<Node>, app: &App, tls: bool) -> Router {
    let router = node.router().merge(app.router());
    if tls { router.layer(axum::Extension(OverTls)) } else { router }
}

fn control_config(args: &ServeArgs) -> Config {
    const GB: u64 = 1 << 30;
    Config {
        images_per_owner_max: Some(args.images_per_owner),
        image_bytes_per_owner_max: args.image_gb_per_owner.map(|gb| gb.saturating_mul(GB)),
        builder_idle_minutes: args.builder_idle_minutes,
        ..Config::default()
    }
}

fn node_config(args: &ServeArgs, data_dir: &Path) -> Result<NodeConfig, ServeError> {
    let warren =
        std::env::current_exe().map_err(|source| ServeError::System { action: "find our own executable", source })?;
    let advertised = args.advertise.as_deref().map(|url| format!("{}{GATEWAY_PATH}", url.trim_end_matches('/')));
    Ok(NodeConfig {
        data_dir: data_dir.to_owned(),
        gateway_url: advertised,
        accel: args.accel.into(),
        warren,
        images: warren_image::Config {
            quota_bytes: args.image_quota.map(|gib| gib.saturating_mul(1 << 30)),
            objects: args.objects.clone(),
            tag_fresh: Duration::from_secs(args.tag_fresh_secs),
            blobs_bytes: args.layer_cache_gb.saturating_mul(1 << 30),
            ..registries::load(args.registries.as_deref(), data_dir)?
        },
        guests: Default::default(),
    })
}

impl From<crate::args::AccelChoice> for warren_node::AccelChoice {
    fn from(choice: crate::args::AccelChoice) -> Self {
        match choice {
            crate::args::AccelChoice::Auto => Self::Auto,
            crate::args::AccelChoice::Kvm => Self::Kvm,
            crate::args::AccelChoice::Tcg => Self::Tcg,
        }
    }
}
