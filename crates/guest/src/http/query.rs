/// The query of a request: percent-decoded on demand, into bytes, as file names are.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// Of a request's target.
    pub fn of(uri: &'a http::Uri) -> Self {
        Self(uri.query().unwrap_or(""))
    }

    /// The first value of that name; an incomplete escape stands for itself.
    pub fn get(self, name: &str) -> Option<Vec<u8>> {
        self.0.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then(|| decode(value))
        })
    }

    /// The first value of that name, if it is text.
    pub fn get_text(self, name: &str) -> Option<String> {
        self.get(name).and_then(|bytes| String::from_utf8(bytes).ok())
    }
}

fn decode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                out.push(high << 4 | low);
                rest = &tail[2..];
            }
            None => {
                // A form's way to write a space; a plus sign itself arrives escaped.
                out.push(if first == b'+' { b' ' } else { first });
                rest = tail;
            }
        }
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_bytes() {
        let query = Query("path=%2Ftmp%2F%ff+a%2Bb&offset=-10&empty=&flag");
        assert_eq!(query.get("path").unwrap(), b"/tmp/\xff a+b");
        assert_eq!(query.get_text("offset").unwrap(), "-10");
        assert_eq!(query.get("empty").unwrap(), b"");
        assert_eq!(query.get("flag").unwrap(), b"");
        assert_eq!(query.get("missing"), None);
        assert_eq!(query.get_text("path"), None);
    }

    #[test]
    fn broken_escapes_stand_for_themselves() {
        assert_eq!(decode("%"), b"%");
        assert_eq!(decode("%4"), b"%4");
        assert_eq!(decode("%zz%00"), b"%zz\0");
    }

    proptest! {
        #[test]
        fn any_bytes_survive_escaping(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let text: String = bytes.iter().map(|b| format!("%{b:02x}")).collect();
            prop_assert_eq!(decode(&text), bytes);
        }

        #[test]
        fn foreign_text_never_panics(text in "\\PC{0,64}") {
            let _ = Query(&text).get("a");
        }
    }
}
