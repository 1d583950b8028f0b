use crate::report;
use crate::sys::{InterfaceSocket, take_precedence};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs;
use std::io;

/// The guest's one network interface besides the loopback.
pub(crate) const INTERFACE: &str = "eth0";
/// Descriptors that the agent and, by inheritance, commands may open, and up to which they may raise that themselves.
const DESCRIPTORS: (u64, u64) = (64 << 10, 1 << 20);
/// Kernel settings that containers have, so that users who are not root can ping and listen on low ports there.
const SETTINGS: [(&str, &str); 2] =
    [("/proc/sys/net/ipv4/ping_group_range", "0 2147483647"), ("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")];

/// What makes a machine comfortable; none of it is worth failing for, so a fault is told on the console.
pub(super) fn apply() {
    tell("limits", raise_limits());
    tell("priority", take_precedence());
    tell("network", bring_links_up());
    for (path, value) in SETTINGS {
        tell(path, fs::write(path, value));
    }
}

fn tell(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        report!("{what}: {error}");
    }
}

fn raise_limits() -> io::Result<()> {
    let (current, maximum) = DESCRIPTORS;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: Some(maximum) })?)
}

/// Opens loopback and interface; the address comes with the sandbox.
fn bring_links_up() -> io::Result<()> {
    let socket = InterfaceSocket::open()?;
    socket.up("lo")?;
    socket.up(INTERFACE)
}
