use crate::guest::Guest;
use crate::{SERVICE, allow, deny, servers, service, services, start};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use warren_model::egress::EgressPolicy;
use warren_net::{GATEWAY, NetConfig};

const PUBLIC: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

async fn ask(guest: &mut Guest, question: &Message) -> Message {
    let (socket, _) = guest.udp();
    guest.send_to(socket, (GATEWAY, 53), &question.to_vec().unwrap());
    let answer = Message::from_vec(&guest.receive_datagram(socket).await).unwrap();
    assert_eq!(answer.metadata.id, question.metadata.id);
    answer
}

async fn ask_by_tcp(guest: &mut Guest, question: &Message) -> Message {
    let bytes = question.to_vec().unwrap();
    let flow = guest.open((GATEWAY, 53)).await;
    guest.send(flow, &[&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat()).await;
    let length = guest.receive(flow, 2).await;
    let answer = guest.receive(flow, usize::from(u16::from_be_bytes([length[0], length[1]]))).await;
    guest.tcp(flow).close();
    Message::from_vec(&answer).unwrap()
}

/// The addresses of `name`, asked for by the guest.
pub(crate) async fn look_up(guest: &mut Guest, name: &str) -> Vec<Ipv4Addr> {
    let answer = ask(guest, &question(name, RecordType::A)).await;
    addresses(&answer)
}

fn addresses(answer: &Message) -> Vec<Ipv4Addr> {
    let address = |record: &Record| match record.data {
        RData::A(A(address)) => Some(address),
        _ => None,
    };
    answer.answers.iter().filter_map(address).collect()
}

/// A resolver that says of every name that it has `address`, of `big.test` in a text too long for UDP, and of `fail.test` that it failed.
async fn resolver(address: Ipv4Addr) -> (SocketAddr, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (udp, tcp) = servers::udp_and_tcp().await;
    let at = udp.local_addr().unwrap();
    let counter = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok((n, from)) = udp.recv_from(&mut buffer).await {
            counter.fetch_add(1, Ordering::Relaxed);
            let mut answer = answer(&buffer[..n], address);
            if answer.to_vec().unwrap().len() > 512 {
                answer = answer.truncate();
            }
            udp.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let length = stream.read_u16().await.unwrap();
            let mut bytes = vec![0; length.into()];
            stream.read_exact(&mut bytes).await.unwrap();
            let bytes = answer(&bytes, address).to_vec().unwrap();
            stream.write_u16(bytes.len() as u16).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        }
    });
    (at, asked)
}

fn answer(question: &[u8], address: Ipv4Addr) -> Message {
    let question = Message::from_vec(question).unwrap();
    let name = question.queries[0].name().clone();
    let mut answer = Message::response(question.metadata.id, OpCode::Query);
    answer.add_query(question.queries[0].clone());
    match name.to_ascii().as_str() {
        "fail.test." => answer.metadata.response_code = ResponseCode::ServFail,
        "big.test." => {
            let text = RData::TXT(TXT::new(vec!["x".repeat(200); 10]));
            answer.add_answer(Record::from_rdata(name, 1, text));
        }
        _ => {
            answer.add_answer(Record::from_rdata(name, 1, RData::A(A(address))));
        }
    }
    answer
}

fn with_upstreams(upstreams: Vec<SocketAddr>) -> NetConfig {
    NetConfig { upstreams: Some(upstreams), ..NetConfig::default() }
}

#[tokio::test]
async fn an_upstream_is_asked_and_another_where_it_fails() {
    let (good, _) = resolver(PUBLIC).await;
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let nobody = servers::nobody().await;
    let config = with_upstreams(vec![nobody.address, silent.local_addr().unwrap(), good]);
    let (_net, mut guest) = start(config, EgressPolicy::open());
    assert_eq!(look_up(&mut guest, "a.test").await, [PUBLIC]);
}

#[tokio::test]
async fn without_an_upstream_the_guest_is_told() {
    let (_net, mut guest) = start(with_upstreams(vec![]), EgressPolicy::open());
    let answer = ask(&mut guest, &question("a.test", RecordType::A)).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
    let (bad, asked) = resolver(PUBLIC).await;
    let (_net, mut guest) = start(with_upstreams(vec![bad]), EgressPolicy::open());
    let answer = ask(&mut guest, &question("fail.test", RecordType::A)).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn names_outside_the_policy_are_refused_and_no_question_leaves() {
    let (upstream, asked) = resolver(PUBLIC).await;
    for (policy, name, expected) in [
        (allow(&["a.test"]), "b.test", ResponseCode::Refused),
        (allow(&["*.a.test"]), "a.test", ResponseCode::Refused),
        (allow(&["192.0.2.7"]), "a.test", ResponseCode::Refused),
        (allow(&[]), "a.test", ResponseCode::Refused),
        (deny(&["a.test"]), "A.TEST", ResponseCode::Refused),
        (deny(&["*"]), "a.test", ResponseCode::Refused),
    ] {
        let (net, mut guest) = start(with_upstreams(vec![upstream]), policy.clone());
        for kind in [RecordType::A, RecordType::AAAA, RecordType::TXT] {
            let answer = ask(&mut guest, &question(name, kind)).await;
            assert_eq!(answer.metadata.response_code, expected, "{policy:?} {name} {kind}");
        }
        assert_eq!(net.stats().denied, 3);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_policy_that_comes_while_an_upstream_is_asked_counts() {
    let upstream = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let config = with_upstreams(vec![upstream.local_addr().unwrap()]);
    let (net, mut guest) = start(config, EgressPolicy::open());
    let (socket, _) = guest.udp();
    guest.send_to(socket, (GATEWAY, 53), &question("a.test", RecordType::A).to_vec().unwrap());
    let mut buffer = [0; 512];
    let (length, from) = guest.until("asked", |_| upstream.try_recv_from(&mut buffer).ok()).await;
    net.set_policy(deny(&["a.test"]), 2);
    let answer = answer(&buffer[..length], PUBLIC).to_vec().unwrap();
    upstream.send_to(&answer, from).await.unwrap();
    let told = Message::from_vec(&guest.receive_datagram(socket).await).unwrap();
    assert_eq!((told.metadata.response_code, told.answers.len()), (ResponseCode::Refused, 0));
}

#[tokio::test]
async fn what_the_guest_has_no_use_for_is_empty() {
    let (upstream, asked) = resolver(PUBLIC).await;
    let (_net, mut guest) = start(with_upstreams(vec![upstream]), EgressPolicy::open());
    for kind in [RecordType::AAAA, RecordType::HTTPS] {
        let answer = ask(&mut guest, &question("a.test", kind)).await;
        assert_eq!((answer.metadata.response_code, answer.answers.len()), (ResponseCode::NoError, 0));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_large_answer_comes_by_tcp_or_in_a_large_datagram() {
    let (upstream, _) = resolver(PUBLIC).await;
    let (_net, mut guest) = start(with_upstreams(vec![upstream]), EgressPolicy::open());
    let mut big = question("big.test", RecordType::TXT);
    let answer = ask(&mut guest, &big).await;
    assert!(answer.metadata.truncation && answer.answers.is_empty());
    assert_eq!(ask_by_tcp(&mut guest, &big).await.answers.len(), 1);
    let mut edns = Edns::new();
    edns.set_max_payload(4096);
    big.set_edns(edns);
    let answer = ask(&mut guest, &big).await;
    assert!(!answer.metadata.truncation && answer.answers.len() == 1);
}

#[tokio::test]
async fn a_name_opens_the_address_that_the_guest_was_given_for_it() {
    let config = services(vec![service("echo.test", 7, servers::echo().await)]);
    let (_net, mut guest) = start(config, allow(&["echo.test"]));
    assert!(guest.is_refused((SERVICE, 7)).await, "not asked for yet");
    assert_eq!(look_up(&mut guest, "echo.test").await, [SERVICE]);
    let flow = guest.open((SERVICE, 7)).await;
    guest.send(flow, b"x").await;
    assert_eq!(guest.receive(flow, 1).await, b"x");
}

#[tokio::test]
async fn an_answer_that_points_to_a_closed_address_opens_nothing() {
    for address in ["127.0.0.1", "169.254.169.254", "10.0.2.2"] {
        let address = address.parse().unwrap();
        let (upstream, _) = resolver(address).await;
        let (_net, mut guest) = start(with_upstreams(vec![upstream]), allow(&["rebind.test"]));
        assert_eq!(look_up(&mut guest, "rebind.test").await, [address]);
        assert!(guest.is_refused((address, 80)).await, "{address}");
    }
}
