/// Turns bytes that arrive in pieces into the inside of a JSON string, with U+FFFD for what is not UTF-8: the same as decoding
/// the whole at once, in constant memory.
#[derive(Debug, Default)]
pub struct JsonText {
    /// Start of a character whose rest has not come yet.
    partial: Vec<u8>,
}

impl JsonText {
    /// Appends the text of the next piece to `out`.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        if self.partial.is_empty() {
            return self.decode(piece, out);
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(piece);
        self.decode(&joined, out);
    }

    /// Appends what is left once all pieces have come.
    pub fn finish(self, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }

    fn decode(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut at = 0;
        for chunk in bytes.utf8_chunks() {
            escape(chunk.valid(), out);
            let invalid = chunk.invalid();
            at += chunk.valid().len() + invalid.len();
            let may_go_on =
                at == bytes.len() && str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if may_go_on {
                self.partial = invalid.to_vec();
            } else if !invalid.is_empty() {
                out.extend_from_slice("\u{fffd}".as_bytes());
            }
        }
    }
}

fn escape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            byte => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn through_json(pieces: &[&[u8]]) -> String {
        let mut out = b"\"".to_vec();
        let mut text = JsonText::default();
        pieces.iter().for_each(|piece| text.push(piece, &mut out));
        text.finish(&mut out);
        out.push(b'"');
        serde_json::from_slice(&out).unwrap()
    }

    proptest! {
        #[test]
        fn pieces_read_as_the_whole(
            bytes in proptest::collection::vec(
                prop_oneof![Just(0xf0u8), Just(0x9f), Just(0x98), Just(0x80), Just(0xe2), Just(b'"'), Just(b'\n'), any::<u8>()],
                0..80,
            ),
            step in 1usize..9,
        ) {
            let pieces: Vec<&[u8]> = bytes.chunks(step).collect();
            prop_assert_eq!(through_json(&pieces), String::from_utf8_lossy(&bytes));
        }
    }
}
