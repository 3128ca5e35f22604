//! Who is calling: the key's digest against the configuration. Nothing of the request but its
//! credential and its source address counts.

use std::net::IpAddr;

use http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use super::rejection::{KeyFault, Rejection};
use crate::{config::Config, engine::policy::Key, failures::Failures};

/// Azure clients send the key in this header.
const API_KEY: &str = "api-key";

/// The key that this request was made with.
///
/// # Errors
/// `InvalidKey`, or `KeyGuessing` when too many unknown keys came from `address`.
pub fn authenticate<'a>(
    config: &'a Config,
    failures: &Failures,
    headers: &HeaderMap,
    address: IpAddr,
    now_ms: i64,
) -> Result<&'a std::sync::Arc<Key>, Rejection> {
    let found = credential(headers)
        .ok_or(KeyFault::Missing)
        .and_then(|text| look_up(config, text, address, now_ms));
    found.map_err(|fault| match failures.count(address) {
        Ok(()) => Rejection::InvalidKey(fault),
        Err(retry_after) => Rejection::KeyGuessing { retry_after },
    })
}

fn credential(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        return scheme
            .eq_ignore_ascii_case(b"bearer ")
            .then(|| key.trim_ascii());
    }
    headers
        .get(API_KEY)
        .map(|value| value.as_bytes().trim_ascii())
}

/// Keys are compared as SHA-256 digests only: how long that takes says nothing about how much
/// of a guessed key was right.
fn look_up<'a>(
    config: &'a Config,
    text: &[u8],
    address: IpAddr,
    now_ms: i64,
) -> Result<&'a std::sync::Arc<Key>, KeyFault> {
    let digest: [u8; 32] = Sha256::digest(text).into();
    let key = config.keys.get(&digest).ok_or(KeyFault::Unknown)?;
    if key.disabled {
        return Err(KeyFault::Disabled);
    }
    if key
        .expires
        .is_some_and(|expires| expires.as_millisecond() <= now_ms)
    {
        return Err(KeyFault::Expired);
    }
    let address = address.to_canonical();
    let near = key.allow_from.is_empty() || key.allow_from.iter().any(|net| net.contains(&address));
    if near {
        Ok(key)
    } else {
        Err(KeyFault::Network)
    }
}
