use crate::{SERVICE, allow, deny, servers, service, services, start};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use warren_model::egress::EgressPolicy;
use warren_net::{GATEWAY, NetConfig, Network};
use warren_proto::shim::{OpenFlows, OpenTcp};

#[tokio::test]
async fn bytes_go_both_ways_and_the_flow_ends() {
    let config = services(vec![service("echo.test", 7, servers::echo().await)]);
    let (net, mut guest) = start(config, EgressPolicy::open());
    let flow = guest.open((SERVICE, 7)).await;
    guest.send(flow, b"hello").await;
    assert_eq!(guest.receive(flow, 5).await, b"hello");
    assert_eq!(net.stats().tcp_flows, 1);
    guest.tcp(flow).close();
    assert_eq!(guest.receive_all(flow).await.unwrap(), b"");
    guest.until("slot freed", |_| (net.stats().tcp_flows == 0).then_some(())).await;
}

#[tokio::test]
async fn nobody_listening_is_a_reset() {
    let nobody = servers::nobody().await;
    let config = services(vec![service("none.test", 7, nobody.address)]);
    let (net, mut guest) = start(config, EgressPolicy::open());
    let flow = guest.connect((SERVICE, 7));
    assert!(!guest.connected(flow).await);
    assert_eq!((net.stats().tcp_flows, net.stats().flows_opened), (0, 0));
}

#[tokio::test]
async fn an_end_goes_through_while_the_other_way_stays_open() {
    // The server answers only after it has seen the guest's end.
    let address = servers::tcp(|mut stream| async move {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        stream.write_all(format!("{} bytes", all.len()).as_bytes()).await.unwrap();
    })
    .await;
    let (_net, mut guest) = start(services(vec![service("a.test", 7, address)]), EgressPolicy::open());
    let flow = guest.open((SERVICE, 7)).await;
    guest.send(flow, &[1; 1000]).await;
    guest.tcp(flow).close();
    assert_eq!(guest.receive_all(flow).await.unwrap(), b"1000 bytes");
}

#[tokio::test]
async fn the_hosts_end_leaves_the_guest_free_to_send() {
    let (said, mut heard) = mpsc::channel(1);
    let address = servers::tcp(move |mut stream| {
        let said = said.clone();
        async move {
            stream.shutdown().await.unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            said.send(all).await.unwrap();
        }
    })
    .await;
    let (net, mut guest) = start(services(vec![service("a.test", 7, address)]), EgressPolicy::open());
    let flow = guest.open((SERVICE, 7)).await;
    assert_eq!(guest.receive_all(flow).await.unwrap(), b"");
    guest.send(flow, b"late").await;
    guest.tcp(flow).close();
    let all = guest.until("heard", |_| heard.try_recv().ok()).await;
    assert_eq!(all, b"late");
    guest.until("slot freed", |_| (net.stats().tcp_flows == 0).then_some(())).await;
}

#[tokio::test]
async fn a_reset_goes_through_both_ways() {
    let (said, mut heard) = mpsc::channel(1);
    let address = servers::tcp(move |mut stream| {
        let said = said.clone();
        async move {
            let mut first = [0];
            stream.read_exact(&mut first).await.unwrap();
            if first == *b"r" {
                stream.set_zero_linger().unwrap();
            } else {
                said.send(stream.read(&mut first).await.map_err(|e| e.kind())).await.unwrap();
            }
        }
    })
    .await;
    let (net, mut guest) = start(services(vec![service("a.test", 7, address)]), EgressPolicy::open());
    let by_host = guest.open((SERVICE, 7)).await;
    guest.send(by_host, b"r").await;
    assert_eq!(guest.receive_all(by_host).await, None);

    let by_guest = guest.open((SERVICE, 7)).await;
    guest.send(by_guest, b"g").await;
    guest.tcp(by_guest).abort();
    let end = guest.until("heard", |_| heard.try_recv().ok()).await;
    assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset));
    guest.until("slots freed", |_| (net.stats().tcp_flows == 0).then_some(())).await;
}

#[tokio::test]
async fn connections_from_before_a_snapshot_are_reset_after_it() {
    let echo = servers::echo().await;
    let config = || services(vec![service("echo.test", 7, echo)]);
    let (net, mut guest) = start(config(), EgressPolicy::open());
    // One that waits, one that has something to say later, one that was closed in time.
    let idle = guest.open((SERVICE, 7)).await;
    let busy = guest.open((SERVICE, 7)).await;
    let closed = guest.open((SERVICE, 7)).await;
    for flow in [idle, busy, closed] {
        guest.send(flow, b"hello").await;
        assert_eq!(guest.receive(flow, 5).await, b"hello");
    }
    guest.tcp(closed).close();
    assert!(guest.receive_all(closed).await.is_some());
    guest.until("slot freed", |_| (net.stats().tcp_flows == 2).then_some(())).await;
    let flows = net.open_flows();
    assert_eq!(flows.tcp.len(), 2);

    let (host, stream) = UnixStream::pair().unwrap();
    let next = Network::start(host, config(), EgressPolicy::open(), 1);
    let _source = guest.move_to(stream);
    guest.tcp(busy).send_slice(b"more").unwrap();
    next.reset(&flows);
    assert_eq!(next.open_flows().tcp.len(), 2, "a snapshot taken at once has to know them too");
    assert_eq!(guest.receive_all(idle).await, None);
    assert_eq!(guest.receive_all(busy).await, None);
    guest.until("both let go", |_| next.open_flows().tcp.is_empty().then_some(())).await;

    let fresh = guest.open((SERVICE, 7)).await;
    guest.send(fresh, b"again").await;
    assert_eq!(guest.receive(fresh, 5).await, b"again");
    // The network that the snapshot was taken of carries its connections on.
    assert_eq!(net.stats().tcp_flows, 2);
}

#[tokio::test]
async fn a_guest_that_never_says_how_its_connections_stand_is_given_up_on() {
    let (net, _guest) = start(NetConfig::default(), EgressPolicy::open());
    let lost = OpenTcp { guest_port: 1, address: SERVICE, port: 7, sends: 0, expects: 0 };
    net.reset(&OpenFlows { guest_mac: [2; 6], tcp: vec![lost] });
    assert_eq!(net.open_flows().tcp, [lost]);
    tokio::time::pause();
    let given_up = async {
        while !net.open_flows().tcp.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), given_up).await.unwrap();
}

#[tokio::test]
async fn a_thousand_short_connections_leak_no_slot() {
    let config = services(vec![service("echo.test", 7, servers::echo().await)]);
    let (net, mut guest) = start(config, EgressPolicy::open());
    for round in 0..50u32 {
        let flows: Vec<_> = (0..20).map(|_| guest.connect_sized((SERVICE, 7), 512)).collect();
        for &flow in &flows {
            assert!(guest.connected(flow).await);
            guest.send(flow, &round.to_be_bytes()).await;
            guest.tcp(flow).close();
        }
        for flow in flows {
            assert_eq!(guest.receive_all(flow).await.unwrap(), round.to_be_bytes());
            guest.sockets.remove(flow);
        }
    }
    guest.until("slots freed", |_| (net.stats().tcp_flows == 0).then_some(())).await;
    assert_eq!(net.stats().flows_opened, 1000);
}

#[tokio::test]
async fn a_slow_reader_holds_the_sender_back() {
    let (go, hold) = tokio::sync::watch::channel(false);
    let address = servers::tcp(move |mut stream| {
        let mut hold = hold.clone();
        async move {
            hold.wait_for(|&go| go).await.unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            stream.write_all(&(all.len() as u64).to_be_bytes()).await.unwrap();
        }
    })
    .await;
    let (net, mut guest) = start(services(vec![service("a.test", 7, address)]), EgressPolicy::open());
    let flow = guest.open((SERVICE, 7)).await;
    // The guest sends until nothing more is taken for a while; the kernel's buffers take some megabytes.
    const LIMIT: u64 = 64 << 20;
    let (mut taken, mut stalled) = (0u64, 0);
    guest
        .until("held back", |guest| {
            let n = guest.tcp(flow).send_slice(&[7; 32 << 10]).unwrap() as u64;
            taken += n;
            stalled = if n == 0 { stalled + 1 } else { 0 };
            assert!(taken < LIMIT, "nothing holds the guest back");
            (stalled > 20).then_some(())
        })
        .await;
    assert!(net.stats().sent_bytes < LIMIT);
    go.send(true).unwrap();
    guest.until("all sent", |guest| (guest.tcp(flow).send_queue() == 0).then_some(())).await;
    guest.tcp(flow).close();
    assert_eq!(guest.receive_all(flow).await.unwrap(), taken.to_be_bytes());
}

#[tokio::test]
async fn bulk_arrives_whole_both_ways() {
    const BYTES: usize = if cfg!(debug_assertions) { 4 << 20 } else { 256 << 20 };
    let address = servers::tcp(|mut stream| async move {
        let chunk: Vec<u8> = (0..=255u8).cycle().take(1 << 20).collect();
        let mut got = vec![0; 1 << 20];
        for _ in 0..BYTES >> 20 {
            stream.write_all(&chunk).await.unwrap();
        }
        for _ in 0..BYTES >> 20 {
            stream.read_exact(&mut got).await.unwrap();
            assert_eq!(got, chunk);
        }
        stream.write_all(b"ok").await.unwrap();
    })
    .await;
    for mtu in [1500, 65520] {
        let config = NetConfig { mtu, ..services(vec![service("a.test", 7, address)]) };
        let (_net, mut guest) = start(config, EgressPolicy::open());
        let flow = guest.connect_sized((SERVICE, 7), 512 << 10);
        assert!(guest.connected(flow).await);
        let began = Instant::now();
        let all = guest.receive(flow, BYTES).await;
        let down = began.elapsed();
        assert!(all.iter().zip((0..=255u8).cycle()).all(|(&got, sent)| got == sent));
        let began = Instant::now();
        guest.send(flow, &all).await;
        assert_eq!(guest.receive(flow, 2).await, b"ok");
        let rate = |time: std::time::Duration| (BYTES >> 20) as f64 / time.as_secs_f64();
        println!("mtu {mtu}: to the guest {:.0} MiB/s, from it {:.0} MiB/s", rate(down), rate(began.elapsed()));
    }
}

#[tokio::test]
async fn the_gateway_has_no_other_ports() {
    let (net, mut guest) = start(NetConfig::default(), deny(&[]));
    assert!(guest.is_refused((GATEWAY, 80)).await);
    assert_eq!(net.stats().denied, 1);
}

#[tokio::test]
async fn an_idle_flow_wakes_nobody() {
    let config = services(vec![service("echo.test", 7, servers::echo().await)]);
    let (_net, mut guest) = start(config, EgressPolicy::open());
    let flow = guest.open((SERVICE, 7)).await;
    guest.send(flow, b"hello").await;
    assert_eq!(guest.receive(flow, 5).await, b"hello");
    guest.until("acknowledged", |guest| (guest.tcp(flow).send_queue() == 0).then_some(())).await;
    let parked = || tokio::runtime::Handle::current().metrics().worker_park_count(0);
    tokio::task::yield_now().await;
    // The clock jumps from timer to timer: each one within the hour shows as a park. The sleep itself makes a few.
    tokio::time::pause();
    let before = parked();
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    assert!(parked() - before < 10, "{} parks within an idle hour", parked() - before);
}

#[tokio::test]
async fn the_network_ends_with_its_stream_and_its_handle() {
    let (net, guest) = start(NetConfig::default(), allow(&[]));
    drop(guest);
    net.closed().await;
    net.shutdown().await;

    let config = services(vec![service("echo.test", 7, servers::echo().await)]);
    let (net, mut guest) = start(config, EgressPolicy::open());
    guest.open((SERVICE, 7)).await;
    net.shutdown().await;
}
