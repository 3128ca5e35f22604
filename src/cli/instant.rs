//! Instants as people write them on the command line.

use jiff::{Timestamp, civil::Date, tz::TimeZone};

/// `2027-06-30T12:00:00Z`, `2027-06-30` (its first moment, UTC) or `7d`, `24h`, `30m` (so long
/// before now). Milliseconds since 1970.
///
/// # Errors
/// It is none of these.
pub(super) fn instant(text: &str, now_ms: i64) -> anyhow::Result<i64> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Ok(timestamp.as_millisecond());
    }
    if let Ok(date) = text.parse::<Date>() {
        let first = TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0))?;
        return Ok(first.as_millisecond());
    }
    let units = [('d', 86_400_000), ('h', 3_600_000), ('m', 60_000)];
    let before = units.iter().find_map(|(unit, ms)| {
        let number: u32 = text.strip_suffix(*unit)?.parse().ok()?;
        i64::from(number).checked_mul(*ms)
    });
    before.map(|before| now_ms.saturating_sub(before)).ok_or_else(|| {
        anyhow::anyhow!("{text:?} is no instant; write 2027-06-30T12:00:00Z, 2027-06-30, or 7d, 24h, 30m for so long before now")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_as_they_are_written() {
        let at = |text| instant(text, 100_000_000_000).unwrap();
        assert_eq!(at("1970-01-02"), 86_400_000);
        assert_eq!(at("1970-01-01T01:00:01+01:00"), 1000);
        assert_eq!(at("7d"), 100_000_000_000 - 7 * 86_400_000);
        assert_eq!(at("30m"), 100_000_000_000 - 1_800_000);
        for wrong in ["yesterday", "7", "-7d", "7w", "", "2027-13-01"] {
            assert!(instant(wrong, 0).is_err(), "{wrong}");
        }
    }
}
