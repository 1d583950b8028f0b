//! Numbers of tar headers: octal text, or base 256 when the first bit is set.

/// A signed number field; `None` if it is not one.
pub(super) fn signed(field: &[u8]) -> Option<i64> {
    let first = *field.first()?;
    if first & 0x80 == 0 {
        return octal(field).and_then(|n| i64::try_from(n).ok());
    }
    // Two's complement; the first bit is the marker, the second the sign.
    let negative = first & 0x40 != 0;
    let start: i128 = if negative { -1 } else { 0 };
    let mut value = (start << 6) | i128::from(first & 0x3F);
    for byte in &field[1..] {
        value = value.checked_mul(256)? | i128::from(*byte);
    }
    i64::try_from(value).ok()
}

/// A number field that cannot be negative.
pub(super) fn unsigned(field: &[u8]) -> Option<u64> {
    u64::try_from(signed(field)?).ok()
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = field.split(|b| *b == 0).next().unwrap_or_default();
    let text = text.trim_ascii();
    text.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_and_binary() {
        assert_eq!(signed(b"0000644\0"), Some(0o644));
        assert_eq!(signed(b"   644 \0"), Some(0o644));
        assert_eq!(signed(b"\0\0\0\0"), Some(0));
        assert_eq!(signed(b"0000648\0"), None);
        assert_eq!(signed(&[0x80, 0, 1, 0]), Some(256));
        assert_eq!(signed(&[0xFF, 0xFF, 0xFF, 0xFE]), Some(-2));
        assert_eq!(unsigned(&[0xFF, 0xFF, 0xFF, 0xFE]), None);
        assert_eq!(signed(&[0x80 | 0x3F; 40]), None);
    }
}
