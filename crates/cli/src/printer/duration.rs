/// Seconds for people, as the `prime` CLI writes them: `<1m`, `45m`, `1h05m`, `2d3h`.
pub(crate) fn short_duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (minutes, hours, days) {
        (0, _, _) => "<1m".to_owned(),
        (_, 0, _) => format!("{minutes}m"),
        (_, _, 0) if minutes % 60 == 0 => format!("{hours}h"),
        (_, _, 0) => format!("{hours}h{:02}m", minutes % 60),
        _ if hours % 24 == 0 => format!("{days}d"),
        _ => format!("{days}d{}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_units_are_enough() {
        let cases =
            [(0, "<1m"), (59, "<1m"), (60, "1m"), (3600, "1h"), (3900, "1h05m"), (86_400, "1d"), (98_000, "1d3h")];
        for (seconds, text) in cases {
            assert_eq!(short_duration(seconds), text);
        }
    }
}
