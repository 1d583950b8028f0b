#![allow(unsafe_code)]

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

/// Configures network interfaces by the classic requests: a handful of calls, no netlink parser.
pub struct InterfaceSocket(OwnedFd);

impl InterfaceSocket {
    /// A socket to make the requests through.
    pub fn open() -> io::Result<Self> {
        Ok(Self(rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?))
    }

    /// Brings an interface up.
    pub fn up(&self, name: &str) -> io::Result<()> {
        let mut request = named(name)?;
        self.call(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: SIOCGIFFLAGS has filled in this member of the union.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        request.ifr_ifru.ifru_flags = flags | (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        self.call(libc::SIOCSIFFLAGS, &mut request)
    }

    /// Sets an interface's address and prefix length.
    pub fn address(&self, name: &str, address: Ipv4Addr, prefix: u32) -> io::Result<()> {
        let mut request = named(name)?;
        request.ifr_ifru.ifru_addr = socket_address(address);
        self.call(libc::SIOCSIFADDR, &mut request)?;
        let mask = u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0);
        request.ifr_ifru.ifru_netmask = socket_address(mask.into());
        self.call(libc::SIOCSIFNETMASK, &mut request)
    }

    /// Sets an interface's MTU, bytes.
    pub fn mtu(&self, name: &str, mtu: u32) -> io::Result<()> {
        let mut request = named(name)?;
        request.ifr_ifru.ifru_mtu = mtu as libc::c_int;
        self.call(libc::SIOCSIFMTU, &mut request)
    }

    /// Adds a default route; one that exists is fine.
    pub fn default_route(&self, gateway: Ipv4Addr) -> io::Result<()> {
        // SAFETY: the struct is plain numbers and pointers, for which zero is valid.
        let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
        route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
        route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
        route.rt_gateway = socket_address(gateway);
        route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
        match self.call(libc::SIOCADDRT, &mut route) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            other => other,
        }
    }

    fn call<T>(&self, request: libc::Ioctl, argument: &mut T) -> io::Result<()> {
        // SAFETY: each caller above passes the struct that its request reads and writes.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, std::ptr::from_mut(argument)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn named(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: the struct is plain numbers and a union of such, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0 as libc::c_char; 14];
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}
