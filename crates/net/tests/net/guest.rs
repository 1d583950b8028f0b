//! A guest: Ethernet, ARP, TCP, UDP at the other end of the link.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::socket::{icmp, tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpListenEndpoint};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use warren_net::{GATEWAY, GUEST};

/// Bound of every wait of a test.
const WAIT: Duration = Duration::from_secs(30);
/// A test looks again at what it waits for at least so often.
const TURN: Duration = Duration::from_millis(50);
const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

pub(crate) struct Guest {
    iface: Interface,
    link: Link,
    pub(crate) sockets: SocketSet<'static>,
    stream: UnixStream,
    received: Vec<u8>,
    started: std::time::Instant,
    next_port: u16,
    /// Codes of the ICMP "unreachable" errors that came.
    pub(crate) unreachable: Vec<u8>,
}

/// Frames between smoltcp and the stream.
struct Link {
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<u8>,
    mtu: usize,
}

impl Guest {
    pub(crate) fn new(stream: UnixStream, mtu: u16) -> Self {
        let mut link = Link { incoming: VecDeque::new(), outgoing: Vec::new(), mtu: usize::from(mtu) + 14 };
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(MAC)));
        let mut iface = Interface::new(config, &mut link, Instant::ZERO);
        iface.update_ip_addrs(|addrs| addrs.push(IpCidr::new(IpAddress::Ipv4(GUEST), 24)).unwrap());
        iface.routes_mut().add_default_ipv4_route(GATEWAY).unwrap();
        Self {
            iface,
            link,
            sockets: SocketSet::new(Vec::new()),
            stream,
            received: Vec::new(),
            started: std::time::Instant::now(),
            next_port: 40000,
            unreachable: Vec::new(),
        }
    }

    /// Goes on at another network, as a machine does from a snapshot. Its end of the link to the one that it was at.
    pub(crate) fn move_to(&mut self, stream: UnixStream) -> UnixStream {
        self.received.clear();
        std::mem::replace(&mut self.stream, stream)
    }

    /// Begins to connect; buffers of `size` bytes.
    pub(crate) fn connect_sized(&mut self, to: (Ipv4Addr, u16), size: usize) -> SocketHandle {
        let buffer = || tcp::SocketBuffer::new(vec![0; size]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_ack_delay(None);
        socket.set_nagle_enabled(false);
        self.next_port = self.next_port.checked_add(1).unwrap_or(40000);
        let local = IpListenEndpoint { addr: None, port: self.next_port };
        socket.connect(self.iface.context(), (IpAddress::Ipv4(to.0), to.1), local).unwrap();
        self.sockets.add(socket)
    }

    /// Begins to connect.
    pub(crate) fn connect(&mut self, to: (Ipv4Addr, u16)) -> SocketHandle {
        self.connect_sized(to, 64 << 10)
    }

    /// Connects; false if it was refused by a reset.
    pub(crate) async fn connected(&mut self, handle: SocketHandle) -> bool {
        self.until("connected or refused", |guest| match guest.tcp(handle).state() {
            tcp::State::SynSent => None,
            state => Some(state == tcp::State::Established),
        })
        .await
    }

    /// Whether a connection to `to` is refused by a reset.
    pub(crate) async fn is_refused(&mut self, to: (Ipv4Addr, u16)) -> bool {
        let handle = self.connect(to);
        !self.connected(handle).await
    }

    /// Connects and waits for the connection.
    pub(crate) async fn open(&mut self, to: (Ipv4Addr, u16)) -> SocketHandle {
        let handle = self.connect(to);
        assert!(self.connected(handle).await, "refused");
        handle
    }

    pub(crate) fn tcp(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    pub(crate) async fn send(&mut self, handle: SocketHandle, mut bytes: &[u8]) {
        self.until("sent", |guest| {
            let taken = guest.tcp(handle).send_slice(bytes).unwrap();
            bytes = &bytes[taken..];
            bytes.is_empty().then_some(())
        })
        .await;
    }

    pub(crate) async fn receive(&mut self, handle: SocketHandle, length: usize) -> Vec<u8> {
        let mut got = Vec::new();
        self.until("received", |guest| {
            let wanted = length - got.len();
            let take = |bytes: &mut [u8]| {
                let taken = bytes.len().min(wanted);
                got.extend_from_slice(&bytes[..taken]);
                (taken, ())
            };
            guest.tcp(handle).recv(take).unwrap();
            (got.len() == length).then_some(())
        })
        .await;
        got
    }

    /// Everything up to the host's end. `None` if a reset came instead.
    pub(crate) async fn receive_all(&mut self, handle: SocketHandle) -> Option<Vec<u8>> {
        let mut got = Vec::new();
        self.until("received to the end", |guest| {
            let mut part = vec![0; 64 << 10];
            loop {
                match guest.tcp(handle).recv_slice(&mut part) {
                    Ok(0) => return None,
                    Ok(taken) => got.extend_from_slice(&part[..taken]),
                    Err(tcp::RecvError::Finished) => return Some(true),
                    Err(tcp::RecvError::InvalidState) => return Some(false),
                }
            }
        })
        .await
        .then_some(got)
    }

    /// A UDP socket; returns its port too.
    pub(crate) fn udp(&mut self) -> (SocketHandle, u16) {
        let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 64], vec![0; 256 << 10]);
        let mut socket = udp::Socket::new(buffer(), buffer());
        self.next_port += 1;
        socket.bind(self.next_port).unwrap();
        (self.sockets.add(socket), self.next_port)
    }

    pub(crate) fn send_to(&mut self, handle: SocketHandle, to: (Ipv4Addr, u16), payload: &[u8]) {
        let socket: &mut udp::Socket<'_> = self.sockets.get_mut(handle);
        socket.send_slice(payload, (IpAddress::Ipv4(to.0), to.1)).unwrap();
    }

    pub(crate) async fn receive_datagram(&mut self, handle: SocketHandle) -> Vec<u8> {
        self.until("datagram", |guest| {
            let socket: &mut udp::Socket<'_> = guest.sockets.get_mut(handle);
            socket.recv().ok().map(|(payload, _)| payload.to_vec())
        })
        .await
    }

    pub(crate) fn ping_socket(&mut self, ident: u16) -> SocketHandle {
        let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 4], vec![0; 4096]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(icmp::Endpoint::Ident(ident)).unwrap();
        self.sockets.add(socket)
    }

    /// Waits for an ICMP error and returns its code.
    pub(crate) async fn refusal(&mut self) -> u8 {
        self.until("ICMP error", |guest| guest.unreachable.pop()).await
    }

    /// Runs the guest until `done` gives a value; fails the test after [`WAIT`].
    pub(crate) async fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Guest) -> Option<T>) -> T {
        let deadline = std::time::Instant::now() + WAIT;
        loop {
            self.turn().await;
            if let Some(value) = done(self) {
                self.turn().await;
                return value;
            }
            assert!(std::time::Instant::now() < deadline, "not {what} within {WAIT:?}");
            let now = self.now();
            let delay = self.iface.poll_delay(now, &self.sockets).map_or(TURN, |delay| TURN.min(delay.into()));
            tokio::select! {
                ready = self.stream.readable() => ready.unwrap(),
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    /// Takes in what has come, lets smoltcp work, writes what it says.
    async fn turn(&mut self) {
        self.read();
        let now = self.now();
        self.iface.poll(now, &mut self.link, &mut self.sockets);
        let outgoing = std::mem::take(&mut self.link.outgoing);
        // An error is the end of the network, which tests notice by what does not come.
        _ = self.stream.write_all(&outgoing).await;
    }

    fn now(&self) -> Instant {
        Instant::from_micros(self.started.elapsed().as_micros() as i64)
    }

    fn read(&mut self) {
        self.received.reserve(256 << 10);
        while let Ok(1..) = self.stream.try_read_buf(&mut self.received) {
            if self.received.len() > 1 << 20 {
                break;
            }
        }
        let mut at = 0;
        while let Some(size) = self.received[at..].first_chunk::<4>() {
            let size = u32::from_be_bytes(*size) as usize;
            let Some(frame) = self.received.get(at + 4..at + 4 + size) else { break };
            if frame.len() > 36 && frame[12..14] == [8, 0] && frame[23] == 1 && frame[34] == 3 {
                self.unreachable.push(frame[35]);
            }
            self.link.incoming.push_back(frame.to_vec());
            at += 4 + size;
        }
        self.received.drain(..at);
    }
}

impl phy::Device for Link {
    type RxToken<'a> = RxToken;
    type TxToken<'a> = TxToken<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(RxToken, TxToken<'_>)> {
        self.incoming.pop_front().map(|frame| (RxToken(frame), TxToken(&mut self.outgoing)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<TxToken<'_>> {
        Some(TxToken(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

pub(crate) struct RxToken(Vec<u8>);

impl phy::RxToken for RxToken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

pub(crate) struct TxToken<'a>(&'a mut Vec<u8>);

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.extend_from_slice(&(len as u32).to_be_bytes());
        self.0.extend_from_slice(&frame);
        result
    }
}
