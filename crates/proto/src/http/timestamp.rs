use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A moment with millisecond precision, on the wire RFC 3339 in UTC: `2026-01-02T03:04:05.678Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(u64);

/// The text is no moment after 1970 in RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a time: expected RFC 3339, such as 2026-01-02T03:04:05Z")]
pub struct BadTimestamp;

impl Timestamp {
    /// Last moment that the text form can hold (end of the year 9999), milliseconds since 1970.
    const MS_MAX: u64 = 253_402_300_799_999;

    /// From milliseconds since 1970; later than the year 9999 becomes its end.
    pub fn from_ms(ms: u64) -> Self {
        Self(ms.min(Self::MS_MAX))
    }

    /// Milliseconds since 1970.
    pub fn as_ms(self) -> u64 {
        self.0
    }

    /// Reads RFC 3339 with any zone.
    pub fn parse(text: &str) -> Result<Self, BadTimestamp> {
        let moment = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| BadTimestamp)?;
        u64::try_from(moment.unix_timestamp_nanos() / 1_000_000).map(Self::from_ms).map_err(|_| BadTimestamp)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = OffsetDateTime::from_unix_timestamp((self.0 / 1000) as i64).map_err(|_| fmt::Error)?;
        let (date, clock) = (moment.date(), moment.time());
        let (month, ms) = (u8::from(date.month()), self.0 % 1000);
        write!(f, "{:04}-{month:02}-{:02}T", date.year(), date.day())?;
        write!(f, "{:02}:{:02}:{:02}.{ms:03}Z", clock.hour(), clock.minute(), clock.second())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Timestamp::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn has_a_zone_and_milliseconds() {
        assert_eq!(Timestamp::from_ms(1_767_323_045_678).to_string(), "2026-01-02T03:04:05.678Z");
        assert_eq!(Timestamp::parse("2026-01-02T04:04:05.678901+01:00"), Ok(Timestamp(1_767_323_045_678)));
        for bad in ["", "2026", "2026-01-02", "1969-01-01T00:00:00Z"] {
            assert_eq!(Timestamp::parse(bad), Err(BadTimestamp), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn text_and_back(ms in any::<u64>()) {
            let moment = Timestamp::from_ms(ms);
            prop_assert_eq!(Timestamp::parse(&moment.to_string()), Ok(moment));
        }
    }
}
