//! What a guest sends on its network, to the whole stack behind it. The policy lets nothing out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use warren_model::egress::EgressPolicy;
use warren_net::{NetConfig, Network};

fuzz_target!(|bytes: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let (mut guest, host) = tokio::io::duplex(1 << 20);
        let _network = Network::start(host, NetConfig::default(), EgressPolicy::closed(), 0);
        // Frames of any bytes, each after its length.
        for frame in bytes.chunks(97) {
            let _ = guest.write_all(&(frame.len() as u32).to_be_bytes()).await;
            let _ = guest.write_all(frame).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    });
});
