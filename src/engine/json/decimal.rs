//! Decimal numbers as JSON writes them, compared exactly at any length.

use std::{cmp::Ordering, fmt};

/// `digits × 10^exponent`. Zero has no digits; others have no zero at either end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    digits: Box<str>,
    exponent: i64,
}

impl Decimal {
    /// Reads the text of a JSON number. `None` if it is none, or if its exponent has more than
    /// nine digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return None,
            None => (mantissa, ""),
        };
        let leading_zero = whole.len() > 1 && whole.starts_with('0');
        if whole.is_empty() || leading_zero || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let all = [whole, fraction].concat();
        let trimmed = all.trim_end_matches('0');
        let zeros = i64::try_from(all.len() - trimmed.len()).ok()?;
        let behind_point = i64::try_from(fraction.len()).ok()?;
        let digits: Box<str> = trimmed.trim_start_matches('0').into();
        let zero = digits.is_empty();
        Some(Self {
            negative: negative && !zero,
            exponent: if zero {
                0
            } else {
                exponent - behind_point + zeros
            },
            digits,
        })
    }

    fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    /// Compares without the sign. Digits of the same magnitude compare like texts: neither has
    /// zeros at its beginning, and a missing digit is a zero.
    fn cmp_size(&self, other: &Self) -> Ordering {
        self.magnitude()
            .cmp(&other.magnitude())
            .then_with(|| self.digits.cmp(&other.digits))
    }

    fn magnitude(&self) -> i64 {
        i64::try_from(self.digits.len())
            .unwrap_or(i64::MAX)
            .saturating_add(self.exponent)
    }
}

fn read_exponent(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, text.get(1..)?),
        b'+' => (1, text.get(1..)?),
        _ => (1, text),
    };
    if digits.is_empty() || !all_digits(digits) || digits.trim_start_matches('0').len() > 9 {
        return None;
    }
    digits.parse::<i64>().ok().map(|exponent| sign * exponent)
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.sign().cmp(&other.sign());
        signs.then_with(|| match self.negative {
            true => other.cmp_size(self),
            false => self.cmp_size(other),
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The canonical text: `0`, `15`, `-15e-1`.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.digits.is_empty() {
            return f.write_str("0");
        }
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}{}", self.digits)?;
        match self.exponent {
            0 => Ok(()),
            exponent => write!(f, "e{exponent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal {
        Decimal::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn spellings_of_one_number_are_one_number() {
        for (text, canonical) in [
            ("1", "1"),
            ("1.0", "1"),
            ("10e-1", "1"),
            ("0.1e+1", "1"),
            ("100", "1e2"),
            ("1E2", "1e2"),
            ("-1.50", "-15e-1"),
            ("0", "0"),
            ("-0.00e5", "0"),
            ("1e400", "1e400"),
            ("9007199254740993", "9007199254740993"),
            ("1e-000000000001", "1e-1"),
        ] {
            assert_eq!(number(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn numbers_are_ordered_beyond_what_a_float_can_tell_apart() {
        let ascending = [
            "-1e400",
            "-100",
            "-99.5",
            "-1",
            "-0.5",
            "0",
            "1e-400",
            "0.5",
            "1",
            "1.5",
            "2",
            "10",
            "99.99999999999999999999",
            "100",
            "100.00000000000000000001",
            "9007199254740992",
            "9007199254740993",
            "1e400",
        ];
        for (at, one) in ascending.iter().enumerate() {
            for (other_at, other) in ascending.iter().enumerate() {
                assert_eq!(
                    number(one).cmp(&number(other)),
                    at.cmp(&other_at),
                    "{one} {other}"
                );
            }
        }
    }

    #[test]
    fn what_json_does_not_call_a_number_is_none() {
        for text in [
            "",
            "-",
            "+1",
            "01",
            "1.",
            ".5",
            "1e",
            "1e+",
            "0x1",
            "1_0",
            "NaN",
            "Infinity",
            "1 ",
            "1e1234567890",
            "--1",
            "1e--1",
            "1.2.3",
            "-01",
            "00",
            "１",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }
}
