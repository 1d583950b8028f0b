//! What a registry asks for in `WWW-Authenticate`. Pure; the text is hostile.

/// A way to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// User and password with each request.
    Basic,
    /// A token, fetched from `realm`.
    Bearer {
        /// URL of the token server.
        realm: String,
        /// Names the registry to it.
        service: Option<String>,
        /// What the token is to allow.
        scope: Option<String>,
    },
}

/// Parses one header value; `None` if it asks for nothing that is known.
pub(super) fn parse(header: &str) -> Option<Challenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service, mut scope) = (None, None, None);
    for (key, value) in parameters(rest) {
        match key.to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value),
            "service" => service = Some(value),
            "scope" => scope = Some(value),
            _ => {}
        }
    }
    Some(Challenge::Bearer { realm: realm?, service, scope })
}

/// `key=value` or `key="value"`, separated by commas that may also be within quotes.
fn parameters(mut text: &str) -> Vec<(&str, String)> {
    let mut out = Vec::new();
    while let Some((key, rest)) = text.split_once('=') {
        let key = key.trim_matches([' ', ',']);
        let (value, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].trim().to_owned(), &rest[end..])
            }
        };
        out.push((key, value));
        text = after;
    }
    out
}

/// The text up to the closing quote, and what follows it.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bearer_and_basic() {
        let header = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#;
        let expected = Challenge::Bearer {
            realm: "https://auth.docker.io/token".to_owned(),
            service: Some("registry.docker.io".to_owned()),
            scope: Some("repository:a/b:pull,push".to_owned()),
        };
        assert_eq!(parse(header), Some(expected));
        assert_eq!(parse("Basic realm=\"x\""), Some(Challenge::Basic));
        assert_eq!(parse("basic"), Some(Challenge::Basic));
        let bare = Challenge::Bearer { realm: "http://x".to_owned(), service: None, scope: None };
        assert_eq!(parse("bearer realm=http://x"), Some(bare));
        assert_eq!(parse("Bearer service=\"x\""), None);
        assert_eq!(parse("Negotiate"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(Bearer )?.{0,60}") {
            let _ = parse(&text);
        }
    }
}
