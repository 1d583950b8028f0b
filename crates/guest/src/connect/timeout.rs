use std::time::Duration;
use warren_proto::guest::command_session::limits::TIMEOUT_DIGITS_MAX;
use warren_proto::guest::command_session::{Code, ConnectError};

/// The time that the caller gives a call: a whole positive number of milliseconds, at most ten digits, as the protocol has
/// it. Absent: no limit. Anything else (zero, a sign, a fraction) is refused: a wrong guess would kill commands.
pub(super) fn parse_timeout(header: Option<&[u8]>) -> Result<Option<Duration>, ConnectError> {
    let Some(text) = header else { return Ok(None) };
    let digits = text.len() <= TIMEOUT_DIGITS_MAX && text.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(text).ok().filter(|_| digits).and_then(|text| text.parse::<u64>().ok());
    match number {
        Some(millis) if millis > 0 => Ok(Some(Duration::from_millis(millis))),
        _ => {
            let message = format!(
                "connect-timeout-ms: expected a whole number from 1 to {} digits, got {:?}",
                TIMEOUT_DIGITS_MAX,
                String::from_utf8_lossy(text)
            );
            Err(ConnectError::new(Code::InvalidArgument, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_positive_numbers_are_times() {
        assert_eq!(parse_timeout(None), Ok(None));
        assert_eq!(parse_timeout(Some(b"1")), Ok(Some(Duration::from_millis(1))));
        assert_eq!(parse_timeout(Some(b"2147483648")), Ok(Some(Duration::from_millis(1 << 31))));
        assert_eq!(parse_timeout(Some(b"9999999999")), Ok(Some(Duration::from_millis(9_999_999_999))));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in ["", "0", "-1", "+1", "0.5", "10.0", "1e3", " 1", "99999999999", "null"] {
            assert_eq!(parse_timeout(Some(bad.as_bytes())).unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
    }
}
