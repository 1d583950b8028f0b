//! The host of an HTTP/1 request (RFC 9112, 3.2).

use super::{Presented, parsed};

/// Longest method that is waited for, bytes.
const METHOD_LEN_MAX: usize = 20;

/// Reads the host from the head of a request: from the target if it is absolute, else from the one `Host` field.
pub(super) fn name(head: &[u8]) -> Presented {
    if !starts_like_a_request(head) {
        return Presented::None;
    }
    let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else { return Presented::Unclear };
    let mut lines = head[..end].split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let Some(target) = lines.next().and_then(target) else { return Presented::None };
    let mut hosts = lines.filter_map(host_field);
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Presented::None };
    match authority_of(target) {
        Some(authority) => parsed(without_port(authority)),
        None => parsed(without_port(host)),
    }
}

fn starts_like_a_request(head: &[u8]) -> bool {
    let method = head.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let ends = head.get(method);
    (1..=METHOD_LEN_MAX).contains(&method) && ends.is_none_or(|&byte| byte == b' ')
}

/// The target of a request line with an HTTP/1 version.
fn target(line: &[u8]) -> Option<&[u8]> {
    let mut words = line.split(|&byte| byte == b' ');
    let (_method, target, version) = (words.next()?, words.next()?, words.next()?);
    (words.next().is_none() && version.starts_with(b"HTTP/1.")).then_some(target)
}

/// The authority of an absolute target, or of one that is an authority (CONNECT); `None` for a path.
fn authority_of(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") || target == b"*" {
        return None;
    }
    let scheme = target.windows(3).position(|three| three == b"://");
    let rest = scheme.map_or(target, |at| &target[at + 3..]);
    let authority = rest.split(|byte| b"/?#".contains(byte)).next().unwrap_or(rest);
    Some(authority.rsplit(|&byte| byte == b'@').next().unwrap_or(authority))
}

fn host_field(line: &[u8]) -> Option<&[u8]> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = line.split_at(colon);
    name.eq_ignore_ascii_case(b"host").then(|| value[1..].trim_ascii())
}

fn without_port(authority: &[u8]) -> &[u8] {
    match authority.iter().rposition(|&byte| byte == b':') {
        Some(colon) if authority[colon + 1..].iter().all(u8::is_ascii_digit) => &authority[..colon],
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_model::egress::HostName;

    fn named(text: &str) -> Presented {
        Presented::Name(HostName::parse(text).unwrap())
    }

    #[test]
    fn the_host_is_read_once_the_head_is_whole() {
        let head = b"GET /a HTTP/1.1\r\nAccept: */*\r\nhOst:  A.Example:80 \r\n\r\nbody";
        assert_eq!(name(head), named("a.example"));
        for cut in 1..head.len() - 4 {
            assert_eq!(name(&head[..cut]), Presented::Unclear, "{cut}");
        }
    }

    #[test]
    fn an_absolute_target_counts_more_than_the_field() {
        assert_eq!(name(b"GET http://u@b.example:80/x?y HTTP/1.1\r\nHost: a.example\r\n\r\n"), named("b.example"));
        assert_eq!(name(b"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n"), named("b.example"));
        assert_eq!(name(b"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n"), named("a.example"));
    }

    #[test]
    fn no_name() {
        for head in [
            &b"SSH-2.0-OpenSSH_9\r\n"[..],
            b"\x00\x01",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
            b"GET / HTTP/1.1\r\nAccept: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: 1.2.3.4\r\n\r\n",
            b"GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        ] {
            assert_eq!(name(head), Presented::None, "{}", head.escape_ascii());
        }
    }
}
