use crate::http::Refusal;
use http::StatusCode;
use warren_proto::guest::limits::READ_FILE_LEN_MAX;

/// Part of a file, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// Where it starts.
    pub(super) offset: u64,
    /// Its length.
    pub(super) len: u64,
}

/// The part of a file of `total` bytes that is asked for. A negative offset counts from the end; both ends are clamped to the
/// file. Without a length it goes to the end. More than [`READ_FILE_LEN_MAX`] is refused.
pub(super) fn window(offset: Option<&str>, length: Option<&str>, total: u64) -> Result<Window, Refusal> {
    let number = |name: &str, text: &str| {
        let parsed = text.parse::<i64>();
        parsed.map_err(|_| Refusal::bad_request(format!("{name}: expected a whole number, got {text:?}")))
    };
    let offset = match offset.map(|text| number("offset", text)).transpose()?.unwrap_or(0) {
        back if back < 0 => total.saturating_sub(back.unsigned_abs()),
        offset => total.min(offset.unsigned_abs()),
    };
    let rest = total - offset;
    let len = match length.map(|text| number("length", text)).transpose()? {
        Some(length) if length < 0 => return Err(Refusal::bad_request("length: must not be negative")),
        Some(length) => rest.min(length.unsigned_abs()),
        None => rest,
    };
    if len > READ_FILE_LEN_MAX {
        return Err(Refusal {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            code: "too_large",
            message: format!(
                "{len} bytes are more than the {READ_FILE_LEN_MAX} of one answer: ask for a window, or download"
            ),
        });
    }
    Ok(Window { offset, len })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(offset: Option<&str>, length: Option<&str>, total: u64) -> Result<(u64, u64), u16> {
        window(offset, length, total).map(|w| (w.offset, w.len)).map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn windows_are_clamped() {
        assert_eq!(of(None, None, 10), Ok((0, 10)));
        assert_eq!(of(Some("3"), Some("4"), 10), Ok((3, 4)));
        assert_eq!(of(Some("-3"), None, 10), Ok((7, 3)));
        assert_eq!(of(Some("-99"), Some("4"), 10), Ok((0, 4)));
        assert_eq!(of(Some("99"), Some("4"), 10), Ok((10, 0)));
        assert_eq!(of(Some("0"), Some("0"), 10), Ok((0, 0)));
        assert_eq!(of(Some("-10485760"), Some("10485760"), 20 << 20), Ok((10 << 20, 10 << 20)));
        assert_eq!(of(Some("-9223372036854775808"), None, 10), Ok((0, 10)));
    }

    #[test]
    fn too_much_and_nonsense_are_refused() {
        assert_eq!(of(None, None, READ_FILE_LEN_MAX + 1), Err(413));
        assert_eq!(of(None, Some("9223372036854775807"), READ_FILE_LEN_MAX), Ok((0, READ_FILE_LEN_MAX)));
        for bad in ["", "x", "1.5", "99999999999999999999"] {
            assert_eq!(of(Some(bad), None, 10), Err(400));
            assert_eq!(of(None, Some(bad), 10), Err(400));
        }
        assert_eq!(of(None, Some("-1"), 10), Err(400));
    }

    proptest! {
        #[test]
        fn a_window_lies_inside_the_file(offset in any::<i64>(), length in 0..i64::MAX, total in any::<u64>()) {
            if let Ok(found) = window(Some(&offset.to_string()), Some(&length.to_string()), total) {
                prop_assert!(found.offset <= total && found.len <= total - found.offset && found.len <= READ_FILE_LEN_MAX);
            }
        }
    }
}
