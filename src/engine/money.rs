//! Money as integer nano-dollars: exact sums, no floats.

use std::fmt;

/// An amount in nano-dollars (10⁻⁹ USD). Never negative in a balance; arithmetic is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Money(u64);

impl Money {
    pub const ZERO: Self = Self(0);

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Reads a plain decimal number of dollars, such as `"5.00"`. `None` unless it is exact in
    /// nano-dollars and fits.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) || text.ends_with('.') {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > 9 {
            return None;
        }
        let nanos: u64 = format!("{fraction:0<9}").parse().ok()?;
        whole
            .parse::<u64>()
            .ok()?
            .checked_mul(1_000_000_000)?
            .checked_add(nanos)
            .map(Self)
    }
}

/// Dollars with at least two decimals and no more than are needed: `$0.10`, `$0.000003`.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let fraction = format!("{nanos:09}");
        let trimmed = fraction.trim_end_matches('0');
        write!(f, "${whole}.{trimmed:0<2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_exact_dollars() {
        for (text, nanos, shown) in [
            ("5", 5_000_000_000, "$5.00"),
            ("0.10", 100_000_000, "$0.10"),
            ("0.000000001", 1, "$0.000000001"),
            ("12.5000000000", 12_500_000_000, "$12.50"),
        ] {
            assert_eq!(Money::parse(text), Some(Money::from_nanos(nanos)), "{text}");
            assert_eq!(Money::from_nanos(nanos).to_string(), shown);
        }
    }

    #[test]
    fn refuses_what_is_not_an_exact_amount() {
        for text in [
            "",
            ".5",
            "5.",
            "-1",
            "1e3",
            "0.0000000001",
            "1,0",
            " 1",
            "99999999999999",
        ] {
            assert_eq!(Money::parse(text), None, "{text}");
        }
    }
}
