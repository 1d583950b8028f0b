//! A host name in canonical form.

use std::fmt;

/// A DNS host name: lower case, ASCII (international labels as `xn--`), no trailing dot.
///
/// At most 253 bytes, labels of 1 to 63 bytes of `a-z0-9_-`; the last label is not a number, so that it is never mistaken for an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// Longest name, bytes.
    pub const LEN_MAX: usize = 253;
    /// Longest label, bytes.
    pub const LABEL_LEN_MAX: usize = 63;

    /// Canonicalises `text`; the error says what is wrong with it, without repeating it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err("the host name is empty");
        }
        // A bound before IDNA, whose cost grows with its input; each label of 63 bytes stems from at most 63 characters.
        if text.len() > 4 * Self::LEN_MAX {
            return Err("the host name is longer than 253 bytes");
        }
        let ascii = idna::domain_to_ascii_cow(text.as_bytes(), idna::AsciiDenyList::EMPTY)
            .map_err(|_| "not a valid host name")?
            .into_owned();
        check(&ascii)?;
        Ok(Self(ascii))
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `self` lies beneath `parent`, at any depth.
    pub fn is_below(&self, parent: &HostName) -> bool {
        self.0.strip_suffix(parent.as_str()).is_some_and(|rest| rest.ends_with('.'))
    }
}

fn check(ascii: &str) -> Result<(), &'static str> {
    if ascii.len() > HostName::LEN_MAX {
        return Err("the host name is longer than 253 bytes");
    }
    for label in ascii.split('.') {
        match label.len() {
            0 => return Err("the host name contains an empty label"),
            1..=HostName::LABEL_LEN_MAX => {}
            _ => return Err("a label is longer than 63 bytes"),
        }
        if !label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_') {
            return Err("a host name has letters, digits, '-' and '.' only");
        }
    }
    let last = ascii.rsplit('.').next().unwrap_or(ascii);
    if last.bytes().all(|b| b.is_ascii_digit()) {
        return Err("neither an IPv4 address nor a host name");
    }
    Ok(())
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_form() {
        for (text, canonical) in [
            ("Example.COM.", "example.com"),
            ("bücher.de", "xn--bcher-kva.de"),
            ("_dmarc.example.com", "_dmarc.example.com"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(HostName::parse(text).unwrap().as_str(), canonical);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let long_label = "a".repeat(64);
        let long_name = ["a".repeat(60).as_str(); 5].join(".");
        for text in [
            "",
            ".",
            "a..b",
            ".a",
            "a b",
            "a/b",
            "a:b",
            "a@b",
            "1.2.3.256",
            "1.2.3",
            "xn--\u{0}",
            &long_label,
            &long_name,
        ] {
            assert!(HostName::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn below_is_by_label() {
        let name = |text| HostName::parse(text).unwrap();
        assert!(name("a.b.example.com").is_below(&name("example.com")));
        assert!(!name("example.com").is_below(&name("example.com")));
        assert!(!name("badexample.com").is_below(&name("example.com")));
    }
}
