use crate::{SERVICE, allow, deny, servers, service, services, start};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use tokio::net::TcpListener;
use warren_model::egress::EgressPolicy;
use warren_net::{HostService, NetConfig, NetworkHandle};

#[tokio::test]
async fn what_the_policy_refuses_fails_at_once() {
    let config = services(vec![service("echo.test", 7, servers::echo().await)]);
    for policy in [allow(&[]), allow(&["198.51.100.100:8", "other.test"]), deny(&["198.51.100.0/24"]), deny(&["*:7"])] {
        let (net, mut guest) = start(config.clone(), policy);
        assert!(guest.is_refused((SERVICE, 7)).await);
        assert_eq!((net.stats().denied, net.stats().tcp_flows), (1, 0));
    }
}

#[tokio::test]
async fn what_the_policy_allows_opens() {
    let config = services(vec![service("echo.test", 7, servers::echo().await)]);
    for policy in [allow(&["198.51.100.100:7"]), allow(&["*"]), allow(&["0.0.0.0/0"]), deny(&["198.51.100.100:8"])] {
        let (_net, mut guest) = start(config.clone(), policy);
        guest.open((SERVICE, 7)).await;
    }
}

#[tokio::test]
async fn a_service_may_be_in_the_guests_own_network_which_is_closed() {
    let near = Ipv4Addr::new(10, 0, 2, 100);
    let config = services(vec![HostService { address: near, ..service("near.test", 7, servers::echo().await) }]);
    let (_net, mut guest) = start(config, EgressPolicy::open());
    guest.open((near, 7)).await;
    assert!(guest.is_refused((near, 8)).await);
}

#[tokio::test]
async fn closed_by_default() {
    // Listeners on loopback and on all addresses, so that an open way would succeed.
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (_net, mut guest) = start(NetConfig::default(), EgressPolicy::open());
    for address in ["127.0.0.1", "127.1.2.3", "0.0.0.1", "169.254.169.254", "10.0.2.2", "10.0.2.77", "240.0.0.1"] {
        assert!(guest.is_refused((address.parse().unwrap(), port)).await, "{address}");
    }
}

/// An address of this machine that is not loopback, if it has one.
fn own_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(address) if !address.ip().is_loopback() && !address.ip().is_link_local() => Some(*address.ip()),
        _ => None,
    }
}

#[tokio::test]
async fn the_nodes_addresses_open_by_a_rule_of_their_own_only() {
    let Some(own) = own_address() else { return println!("no address besides loopback: nothing to test with") };
    let listener = TcpListener::bind((own, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let closed = NetConfig { closed: vec![format!("{own}/32").parse().unwrap()], ..NetConfig::default() };

    let (_net, mut guest) = start(NetConfig::default(), EgressPolicy::open());
    guest.open((own, port)).await;
    for policy in [EgressPolicy::open(), allow(&["*"]), allow(&["0.0.0.0/0"])] {
        let (_net, mut guest) = start(closed.clone(), policy);
        assert!(guest.is_refused((own, port)).await);
    }
    let (_net, mut guest) = start(closed, allow(&[&format!("{own}:{port}")]));
    guest.open((own, port)).await;
}

#[tokio::test]
async fn a_new_policy_holds_for_new_flows_and_spares_old_ones() {
    let config = services(vec![service("echo.test", 7, servers::echo().await)]);
    let (net, mut guest) = start(config, EgressPolicy::open());
    let old = guest.open((SERVICE, 7)).await;
    net.set_policy(allow(&[]), 2);
    assert_eq!(net.generation(), 2);
    assert!(guest.is_refused((SERVICE, 7)).await);
    guest.send(old, b"still here").await;
    assert_eq!(guest.receive(old, 10).await, b"still here");
    net.set_policy(EgressPolicy::open(), 1);
    assert_eq!(net.generation(), 2, "a late policy changes nothing");
    net.set_policy(EgressPolicy::open(), 3);
    guest.open((SERVICE, 7)).await;
}

/// Whether a flow to port `port` of `name.test` survives `first`, with the echo server there.
async fn survives(policy: EgressPolicy, port: u16, first: &[u8]) -> (bool, NetworkHandle) {
    let config = services(vec![service("name.test", port, servers::echo().await)]);
    let (net, mut guest) = start(config, policy);
    crate::dns::look_up(&mut guest, "name.test").await;
    let flow = guest.open((SERVICE, port)).await;
    guest.send(flow, first).await;
    guest.tcp(flow).close();
    let echoed = guest.receive_all(flow).await;
    assert!(echoed.as_deref().is_none_or(|echoed| echoed == first));
    (echoed.is_some(), net)
}

#[tokio::test]
async fn the_name_that_a_flow_presents_must_be_allowed() {
    let get = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    for (policy, first, expected) in [
        (allow(&["name.test"]), get("name.test"), true),
        (allow(&["name.test"]), get("other.test"), false),
        (allow(&["name.test", "*.other.test"]), get("a.other.test"), true),
        (allow(&["name.test"]), b"no HTTP".to_vec(), false),
        (allow(&["name.test", "198.51.100.100"]), get("other.test"), true),
        (deny(&["other.test"]), get("other.test"), false),
        (deny(&["other.test"]), get("name.test"), true),
        (deny(&["other.test"]), b"no HTTP".to_vec(), true),
    ] {
        let shown = format!("{policy:?} {}", first.escape_ascii());
        let (survived, net) = survives(policy, 80, &first).await;
        assert_eq!(survived, expected, "{shown}");
        assert_eq!(net.stats().denied, u64::from(!expected), "{shown}");
    }
    assert!(survives(allow(&["name.test"]), 8080, b"no HTTP").await.0, "other ports present no name");
}
