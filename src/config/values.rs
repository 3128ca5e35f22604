//! What single values mean: numbers, names, money, time.
//!
//! Each function takes a TOML value and gives the checked thing or a complaint that says how it
//! would be right. Values in which a secret may have been put by mistake are never repeated.

use std::{net::SocketAddr, num::NonZeroU64, time::Duration};

use ipnet::IpNet;
use jiff::{Timestamp, civil::Time, tz::TimeZone};
use toml::de::DeValue;

use super::text::suggestion;
use crate::engine::{money::Money, policy::Pattern};

type Read<T> = Result<T, String>;

pub(super) fn text<'a>(value: &'a DeValue<'_>) -> Read<&'a str> {
    value
        .as_str()
        .ok_or_else(|| format!("must be a string, not {}", kind(value)))
}

pub(super) fn flag(value: &DeValue<'_>) -> Read<bool> {
    value
        .as_bool()
        .ok_or_else(|| format!("must be true or false, not {}", kind(value)))
}

/// A whole number from 0.
pub(super) fn count(value: &DeValue<'_>) -> Read<u64> {
    let number = value
        .as_integer()
        .ok_or_else(|| format!("must be a whole number, not {}", kind(value)))?;
    u64::from_str_radix(number.as_str(), number.radix())
        .map_err(|_| format!("{number} is not a number from 0 to {}", u64::MAX))
}

/// A whole number from 1.
pub(super) fn positive(value: &DeValue<'_>) -> Read<NonZeroU64> {
    NonZeroU64::new(count(value)?).ok_or_else(|| "must be at least 1".to_owned())
}

/// A share from 1 to 100.
pub(super) fn percent(value: &DeValue<'_>) -> Read<u8> {
    let found = positive(value)?.get();
    u8::try_from(found)
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| "must be at most 100".to_owned())
}

/// One of some words, such as `refuse` or `local`.
pub(super) fn one_of<T: Copy>(words: &[(&str, T)]) -> impl Fn(&DeValue<'_>) -> Read<T> {
    |value| {
        let known = || {
            let words: Vec<&str> = words.iter().map(|(known, _)| *known).collect();
            words.join(", ")
        };
        let complaint = || format!("must be a string, one of {}; not {}", known(), kind(value));
        let word = value.as_str().ok_or_else(complaint)?;
        let found = words.iter().find(|(known, _)| *known == word);
        found
            .map(|(_, meaning)| *meaning)
            .ok_or_else(|| format!("unknown {word:?}; known: {}", known()))
    }
}

/// A name that can stand in an account, a metric and a log line as it is.
pub(super) fn name<'a>(value: &'a DeValue<'_>) -> Read<&'a str> {
    let name = text(value)?;
    check_name(name).map(|()| name)
}

/// The rule for the names of keys, tenants, providers and policies.
///
/// # Errors
/// How the name breaks it.
pub fn check_name(name: &str) -> Result<(), String> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@+".contains(&byte);
    if (1..=128).contains(&name.len()) && name.bytes().all(fine) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is no name; use 1 to 128 of the characters A-Z a-z 0-9 - _ . @ +"
    ))
}

/// The name of a policy: a key's `policy` separates the version by `@`.
pub(super) fn policy_id<'a>(value: &'a DeValue<'_>) -> Read<&'a str> {
    let id = name(value)?;
    if id.contains('@') {
        return Err(format!(
            "{id:?} holds an @; the version has a member of its own"
        ));
    }
    Ok(id)
}

/// `"30s"`, `"0s"`: one number and one unit.
pub(super) fn duration(value: &DeValue<'_>) -> Read<Duration> {
    let text = words(value, "30s")?;
    let (number, unit) = number_and_unit(text);
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let product = millis
        .zip(number)
        .and_then(|(unit, number)| number.checked_mul(unit));
    product.map(Duration::from_millis).ok_or_else(|| {
        format!("{text:?} is no duration; write \"500ms\", \"30s\", \"5m\" or \"24h\"")
    })
}

/// A duration in which something can happen.
pub(super) fn timeout(value: &DeValue<'_>) -> Read<Duration> {
    match duration(value)? {
        Duration::ZERO => Err("must be longer than 0".to_owned()),
        duration => Ok(duration),
    }
}

/// `"10MiB"`, in bytes.
pub(super) fn size(value: &DeValue<'_>) -> Read<u64> {
    let text = words(value, "10MiB")?;
    let (number, unit) = number_and_unit(text);
    let bytes = match unit {
        "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let product = bytes
        .zip(number)
        .and_then(|(unit, number)| number.checked_mul(unit));
    product
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("{text:?} is no size; write \"512KiB\", \"10MiB\" or \"1GiB\""))
}

/// Dollars, exact: `"25.00"` or 25.
pub(super) fn money(value: &DeValue<'_>) -> Read<Money> {
    let text = match value {
        DeValue::String(text) => text.as_ref(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
        DeValue::Float(number) => {
            return Err(format!(
                "must stand in quotes to be exact: \"{}\"",
                number.as_str()
            ));
        }
        _ => {
            return Err(format!(
                "must be an amount such as \"25.00\", not {}",
                kind(value)
            ));
        }
    };
    Money::parse(text).ok_or_else(|| {
        format!("{text:?} is no amount in dollars; write \"25.00\", with at most 9 decimals")
    })
}

pub(super) fn address(value: &DeValue<'_>) -> Read<SocketAddr> {
    let text = words(value, "127.0.0.1:8080")?;
    text.parse()
        .map_err(|_| format!("{text:?} is no address and port such as \"127.0.0.1:8080\""))
}

/// A network in CIDR form, or one address.
pub(super) fn network(value: &DeValue<'_>) -> Read<IpNet> {
    let text = words(value, "10.0.0.0/8")?;
    let one = || text.parse::<std::net::IpAddr>().map(IpNet::from);
    text.parse::<IpNet>()
        .or_else(|_| one())
        .map(|network| network.trunc())
        .map_err(|_| format!("{text:?} is no network such as \"10.0.0.0/8\""))
}

/// An RFC 3339 instant with its offset, in quotes or as a TOML date-time.
pub(super) fn instant(value: &DeValue<'_>) -> Read<Timestamp> {
    let text = match value {
        DeValue::Datetime(instant) => instant.to_string(),
        other => words(other, "2027-06-30T00:00:00Z")?.to_owned(),
    };
    text.parse().map_err(|_| {
        format!("{text:?} is no instant with an offset such as \"2027-06-30T00:00:00Z\"")
    })
}

/// A zone of the IANA database.
pub(super) fn zone(value: &DeValue<'_>) -> Read<TimeZone> {
    let text = words(value, "Europe/Amsterdam")?;
    TimeZone::get(text).map_err(|_| {
        let names: Vec<String> = jiff::tz::db()
            .available()
            .map(|name| name.to_string())
            .collect();
        let near = Some(suggestion(text, names.iter().map(String::as_str)));
        let near = near
            .filter(|near| near.contains("did you mean"))
            .unwrap_or_default();
        format!("{text:?} is no time zone such as \"UTC\" or \"Europe/Amsterdam\"{near}")
    })
}

/// A time of day as `"06:00"`.
pub(super) fn time_of_day(value: &DeValue<'_>) -> Read<Time> {
    let text = words(value, "06:00")?;
    let parts = text.split_once(':').filter(|_| text.len() == 5);
    let number = |part: &str| {
        part.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| part.parse().ok())
    };
    parts
        .and_then(|(hour, minute)| Some((number(hour)??, number(minute)??)))
        .and_then(|(hour, minute)| Time::new(hour, minute, 0, 0).ok())
        .ok_or_else(|| format!("{text:?} is no time of day such as \"06:00\""))
}

/// SHA-256 of a client key.
pub(super) fn digest(value: &DeValue<'_>) -> Read<[u8; 32]> {
    hexadecimal(value).map_err(|wrong| match wrong {
        Some(kind) => kind,
        None => {
            "must be the SHA-256 of the key, 64 hexadecimal digits; `tallygate keys new` prints it"
                .to_owned()
        }
    })
}

/// SHA-256 of an operator's token.
pub(super) fn operator_digest(value: &DeValue<'_>) -> Read<[u8; 32]> {
    hexadecimal(value).map_err(|wrong| match wrong {
        Some(kind) => kind,
        None => "must be the SHA-256 of the token, 64 hexadecimal digits; `tallygate keys new --operator` prints it".to_owned(),
    })
}

/// 64 hexadecimal digits. What stands there instead may be the secret itself, and is not repeated.
fn hexadecimal(value: &DeValue<'_>) -> Result<[u8; 32], Option<String>> {
    let text = text(value).map_err(Some)?;
    let mut digest = [0; 32];
    hex::decode_to_slice(text, &mut digest).map_err(|_| None)?;
    Ok(digest)
}

/// A model name, or a `prefix*`.
pub(super) fn pattern(value: &DeValue<'_>) -> Read<Pattern> {
    let text = text(value)?;
    Pattern::parse(text).ok_or_else(|| {
        format!("{text:?} is neither a name nor a prefix; write \"gpt-4o\" or \"gpt-4o-*\"")
    })
}

/// The name of a model: anything but a pattern.
pub(super) fn model(name: &str) -> Read<()> {
    match Pattern::parse(name) {
        Some(Pattern::Exact(_)) => Ok(()),
        _ => Err(format!("{name:?} is no model name")),
    }
}

/// Text that is looked for as it stands.
pub(super) fn needle(value: &DeValue<'_>) -> Read<Box<str>> {
    match text(value)? {
        "" => Err("an empty pattern would be found in every text".to_owned()),
        needle => Ok(needle.into()),
    }
}

fn words<'a>(value: &'a DeValue<'_>, example: &str) -> Read<&'a str> {
    let complaint = || format!("must be a string such as {example:?}, not {}", kind(value));
    value.as_str().ok_or_else(complaint)
}

fn number_and_unit(text: &str) -> (Option<u64>, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    (number.parse().ok(), unit)
}

pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
