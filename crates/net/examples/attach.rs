//! Serves the network of a QEMU that is started by hand, to look at it from within a guest and to measure.
//!
//! ```text
//! cargo run --release -p warren-net --example attach -- /tmp/net.sock 1500 10.0.2.100:7000=127.0.0.1:7000
//! qemu-system-x86_64 … -netdev stream,id=n,server=off,addr.type=unix,addr.path=/tmp/net.sock -device virtio-net-device,netdev=n
//! ```
//! The guest is 10.0.2.15/24, its gateway and DNS server 10.0.2.2; everything is allowed that is not closed by default.

use std::error::Error;
use std::net::SocketAddrV4;
use tokio::net::UnixListener;
use warren_model::egress::EgressPolicy;
use warren_net::{HostService, NetConfig, Network};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(mtu)) = (args.next(), args.next()) else {
        return Err("give a socket path and an MTU".into());
    };
    let services = args.map(|arg| service(&arg)).collect::<Result<_, _>>()?;
    let config = NetConfig { mtu: mtu.parse()?, services, ..NetConfig::default() };
    let (stream, _) = UnixListener::bind(path)?.accept().await?;
    let network = Network::start(stream, config, EgressPolicy::open(), 0);
    network.closed().await;
    println!("{:?}", network.stats());
    Ok(())
}

/// Reads `ADDRESS:PORT=TARGET:PORT`.
fn service(text: &str) -> Result<HostService, Box<dyn Error>> {
    let (seen, target) = text.split_once('=').ok_or("a service is ADDRESS:PORT=TARGET:PORT")?;
    let seen: SocketAddrV4 = seen.parse()?;
    Ok(HostService { names: Vec::new(), address: *seen.ip(), port: seen.port(), target: target.parse()? })
}
