//! The public API on a loopback port with a node without machines, to try clients against:
//! `cargo run -p warren-control --example simulated -- DIR 127.0.0.1:8080`.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use warren_control::{App, Config};
use warren_model::EndReason;
use warren_testkit::node::{Life, SimNode};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(listen)) = (args.next().map(PathBuf::from), args.next()) else {
        return Err("usage: simulated DIR ADDRESS:PORT".into());
    };
    let node = SimNode::new(|spec| match spec.image.as_str() {
        "instant" => Life::default(),
        "slow" => Life { start: Duration::from_secs(3), ..Life::default() },
        "building" => Life { build: Some(Duration::from_secs(3)), ..Life::default() },
        "missing" => Life { fail: Some((EndReason::ImagePullFailed, "no such image".to_owned())), ..Life::default() },
        _ => Life { start: Duration::from_millis(200), ..Life::default() },
    });
    let app = App::open(&dir, Arc::new(node), Config::default()).await?;
    let listener = tokio::net::TcpListener::bind(&listen).await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, app.router())
        .with_graceful_shutdown(async {
            // Without a signal handler there is no graceful end, which is what a kill would be.
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;
    app.shutdown().await;
    Ok(())
}
