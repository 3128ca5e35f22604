//! Reads a request body: bounded, decoded, in one piece. What cannot be read is refused, never
//! forwarded unread.

use std::{
    io::{self, Read},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::rejection::Rejection;

/// A client that stalls in the middle of its body is let go after this long without a byte.
const STALL: Duration = Duration::from_secs(60);
/// For so long a body is read that nobody will look at.
const DISCARD: Duration = Duration::from_secs(30);
/// More codings on top of each other than this are a trick, not a client.
const MOST_CODINGS: usize = 3;
/// A window of 8 MiB, the most that RFC 9659 asks HTTP to take: a larger one would be memory that
/// a few bytes claim.
const ZSTD_WINDOW_LOG: u32 = 23;

/// The decoded body, at most `limit` bytes long before and after decoding.
///
/// # Errors
/// `BodyTooLarge`, `UnreadableBody`, `BodyTimeout` or `InvalidRequest`.
pub async fn read(
    headers: &HeaderMap,
    body: &mut Incoming,
    limit: u64,
) -> Result<Bytes, Rejection> {
    let received = collect(body, limit).await?;
    let codings = codings(headers)?;
    codings
        .iter()
        .rev()
        .try_fold(received, |body, coding| decode(coding, &body, limit))
}

/// Reads what is left of the body of a refused request, so that the refusal arrives: a client
/// that is still sending when the connection closes sees a broken connection, and sends again.
/// Not if there is too much of it, nor if the client waits to be asked for it.
pub async fn discard(headers: &HeaderMap, body: &mut Incoming, limit: u64) {
    let mut left = limit.saturating_mul(2);
    if body.size_hint().lower() > left || headers.contains_key(header::EXPECT) {
        return;
    }
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, Bytes::len) as u64;
            match left.checked_sub(size) {
                Some(fewer) => left = fewer,
                None => break,
            }
        }
    };
    let _ = tokio::time::timeout(DISCARD, rest).await;
}

async fn collect(body: &mut Incoming, limit: u64) -> Result<Bytes, Rejection> {
    let too_large = || Rejection::BodyTooLarge { limit };
    if body.size_hint().lower() > limit {
        return Err(too_large());
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    loop {
        let frame = tokio::time::timeout(STALL, body.frame())
            .await
            .map_err(|_| Rejection::BodyTimeout)?;
        let piece = match frame {
            None => break,
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(_)) => return Err(invalid("The request body broke off.")),
        };
        let total = (first.len() + rest.len() + piece.len()) as u64;
        if total > limit {
            return Err(too_large());
        }
        // Small bodies come in one piece and are not copied.
        if first.is_empty() && rest.is_empty() {
            first = piece;
            continue;
        }
        if rest.is_empty() {
            let expected = usize::try_from(body.size_hint().lower()).unwrap_or(0);
            rest.reserve(first.len() + piece.len() + expected);
            rest.extend_from_slice(&first);
            first = Bytes::new();
        }
        rest.extend_from_slice(&piece);
    }
    Ok(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    })
}

fn codings(headers: &HeaderMap) -> Result<Vec<String>, Rejection> {
    let mut codings = Vec::new();
    for value in headers.get_all(header::CONTENT_ENCODING) {
        let text = value.to_str().map_err(|_| unreadable("?"))?;
        codings.extend(
            text.split(',')
                .map(|coding| coding.trim().to_ascii_lowercase())
                .filter(|coding| !coding.is_empty() && coding != "identity"),
        );
    }
    if codings.len() > MOST_CODINGS {
        Err(unreadable(&codings.join(", ")))
    } else {
        Ok(codings)
    }
}

fn decode(coding: &str, body: &[u8], limit: u64) -> Result<Bytes, Rejection> {
    match coding {
        "gzip" | "x-gzip" => drain(flate2::read::MultiGzDecoder::new(body), coding, limit),
        // HTTP's "deflate" is zlib; some clients send raw deflate under the same name.
        "deflate" => match drain(flate2::read::ZlibDecoder::new(body), coding, limit) {
            Err(Rejection::InvalidRequest { .. }) => {
                drain(flate2::read::DeflateDecoder::new(body), coding, limit)
            }
            decoded => decoded,
        },
        "br" => drain(brotli::Decompressor::new(body, 4096), coding, limit),
        "zstd" => {
            let mut decoder = zstd::Decoder::with_buffer(body).map_err(|_| unreadable(coding))?;
            let bounded = decoder.window_log_max(ZSTD_WINDOW_LOG);
            bounded.map_err(|_| unreadable(coding))?;
            drain(decoder, coding, limit)
        }
        other => Err(unreadable(other)),
    }
}

/// Reads at most one byte more than `limit`, so that a small bomb cannot fill memory.
fn drain(decoder: impl Read, coding: &str, limit: u64) -> Result<Bytes, Rejection> {
    let mut plain = Vec::new();
    let read: io::Result<usize> = decoder
        .take(limit.saturating_add(1))
        .read_to_end(&mut plain);
    read.map_err(|_| damaged(coding))?;
    if plain.len() as u64 > limit {
        return Err(Rejection::BodyTooLarge { limit });
    }
    Ok(plain.into())
}

fn unreadable(coding: &str) -> Rejection {
    let coding = coding.chars().take(64).collect();
    Rejection::UnreadableBody { coding }
}

fn damaged(coding: &str) -> Rejection {
    invalid(format!("The request body is not valid {coding}."))
}

fn invalid(message: impl Into<String>) -> Rejection {
    Rejection::InvalidRequest {
        message: message.into(),
        param: None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_compressed_body_is_read_up_to_the_limit_and_not_a_byte_further() {
        let packed = gzip(&[b'a'; 1000]);
        assert_eq!(decode("gzip", &packed, 1000).unwrap().len(), 1000);
        assert!(matches!(
            decode("gzip", &packed, 999),
            Err(Rejection::BodyTooLarge { limit: 999 })
        ));
    }

    #[test]
    fn a_damaged_or_unknown_coding_is_refused() {
        let mut packed = gzip(b"{}");
        packed.truncate(packed.len() - 4);
        assert!(matches!(
            decode("gzip", &packed, 99),
            Err(Rejection::InvalidRequest { .. })
        ));
        assert!(matches!(
            decode("lz9", b"x", 99),
            Err(Rejection::UnreadableBody { .. })
        ));
    }

    #[test]
    fn stacked_codings_are_taken_off_from_the_last() {
        let packed = zstd::encode_all(&gzip(b"{\"a\":1}")[..], 0).unwrap();
        let headers: HeaderMap = [(header::CONTENT_ENCODING, "gzip, zstd".parse().unwrap())]
            .into_iter()
            .collect();
        let plain = codings(&headers)
            .unwrap()
            .iter()
            .rev()
            .try_fold(Bytes::from(packed), |body, coding| {
                decode(coding, &body, 99)
            });
        assert_eq!(plain.unwrap(), Bytes::from_static(b"{\"a\":1}"));
    }
}
