use crate::{SERVICE, deny, servers, service, services, start};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::icmp;
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, IpAddress};
use std::net::Ipv4Addr;
use warren_model::egress::EgressPolicy;
use warren_net::{GATEWAY, NetConfig, limits};

#[tokio::test]
async fn datagrams_go_both_ways() {
    let config = services(vec![service("echo.test", 7, servers::udp_echo().await)]);
    let (net, mut guest) = start(config, EgressPolicy::open());
    let (socket, _) = guest.udp();
    for size in [0, 1, 1400, 60000] {
        let payload = vec![9; size];
        guest.send_to(socket, (SERVICE, 7), &payload);
        assert_eq!(guest.receive_datagram(socket).await, payload);
    }
    assert_eq!((net.stats().flows_opened, net.stats().datagram_flows), (1, 1));
}

#[tokio::test]
async fn refusals_are_told() {
    let nobody = servers::nobody().await;
    let config = services(vec![service("none.test", 7, nobody.address)]);
    let (net, mut guest) = start(config, deny(&["1.2.3.4"]));
    let (socket, _) = guest.udp();
    guest.send_to(socket, (SERVICE, 7), b"?");
    assert_eq!(guest.refusal().await, 3, "nobody listens");
    guest.send_to(socket, (Ipv4Addr::new(1, 2, 3, 4), 7), b"?");
    assert_eq!(guest.refusal().await, 13, "denied");
    assert_eq!(net.stats().denied, 1);
}

#[tokio::test]
async fn the_table_is_bounded_and_the_oldest_makes_room() {
    let config = services(vec![service("echo.test", 7, servers::udp_echo().await)]);
    let (net, mut guest) = start(config, EgressPolicy::open());
    let sent = limits::DATAGRAM_FLOWS_MAX + 50;
    for _ in 0..sent {
        let (socket, _) = guest.udp();
        guest.send_to(socket, (SERVICE, 7), b"?");
        assert_eq!(guest.receive_datagram(socket).await, b"?");
        guest.sockets.remove(socket);
    }
    let stats = net.stats();
    assert_eq!((stats.flows_opened, stats.datagram_flows), (sent as u64, limits::DATAGRAM_FLOWS_MAX));
}

#[tokio::test]
async fn the_gateway_answers_echo() {
    let (_net, mut guest) = start(NetConfig::default(), EgressPolicy::closed());
    let socket = guest.ping_socket(77);
    let request = Icmpv4Repr::EchoRequest { ident: 77, seq_no: 5, data: b"ping" };
    let pinger: &mut icmp::Socket<'_> = guest.sockets.get_mut(socket);
    let bytes = pinger.send(request.buffer_len(), IpAddress::Ipv4(GATEWAY)).unwrap();
    request.emit(&mut Icmpv4Packet::new_unchecked(bytes), &ChecksumCapabilities::default());
    let answer = guest
        .until("echo", |guest| {
            let pinger: &mut icmp::Socket<'_> = guest.sockets.get_mut(socket);
            pinger.recv().ok().map(|(bytes, _)| bytes.to_vec())
        })
        .await;
    let packet = Icmpv4Packet::new_checked(&answer[..]).unwrap();
    assert_eq!((packet.echo_ident(), packet.echo_seq_no(), packet.data()), (77, 5, &b"ping"[..]));
}
