use std::borrow::Cow;

/// The text with every control character written out, so that names from a guest or a server cannot steer the terminal.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if text.chars().any(steers) {
        Cow::Owned(text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
            if steers(c) {
                out.extend(c.escape_default())
            } else {
                out.push(c)
            }
            out
        }))
    } else {
        Cow::Borrowed(text)
    }
}

/// Control characters, and those that reorder or hide what stands beside them.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_steers_is_written_out() {
        assert_eq!(visible("grün 漢字 -_/"), "grün 漢字 -_/");
        assert_eq!(visible("a\nb\x1b]0;x\x07"), "a\\nb\\u{1b}]0;x\\u{7}");
        assert_eq!(visible("exe\u{202e}txt\u{9b}"), "exe\\u{202e}txt\\u{9b}");
    }
}
