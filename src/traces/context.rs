//! The W3C trace context: `traceparent: 00-TRACE-SPAN-FLAGS`.

use std::fmt::{self, Display};

use http::{HeaderMap, HeaderName};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

const SAMPLED: u8 = 1;

pub(super) type TraceId = [u8; 16];
pub(super) type SpanId = [u8; 8];

/// A span of somebody's trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Context {
    pub trace: TraceId,
    pub span: SpanId,
    pub sampled: bool,
}

/// The span that a request belongs to. `None`: it names none, or not in a form that can be read.
pub(super) fn parent(headers: &HeaderMap) -> Option<Context> {
    let mut named = headers.get_all(&TRACEPARENT).iter();
    let value = named.next()?;
    if named.next().is_some() {
        return None;
    }
    read(value.to_str().ok()?.trim())
}

fn read(text: &str) -> Option<Context> {
    let (known, more) = text.split_at_checked(LENGTH)?;
    let mut parts = known.split('-');
    let [version] = bytes::<1>(parts.next()?)?;
    let (trace, span) = (bytes(parts.next()?)?, bytes(parts.next()?)?);
    let [flags] = bytes::<1>(parts.next()?)?;
    // Later versions may say more behind a dash; the first says nothing more, and 255 is none.
    let fits = match version {
        0 => more.is_empty(),
        u8::MAX => false,
        _ => more.is_empty() || more.starts_with('-'),
    };
    let valid = fits && parts.next().is_none() && trace != [0; 16] && span != [0; 8];
    valid.then_some(Context {
        trace,
        span,
        sampled: flags & SAMPLED != 0,
    })
}

/// What the first version fills. Characters.
const LENGTH: usize = 55;

/// Small letters only, as the standard wants it.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let small = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let read = small && hex::decode_to_slice(text, &mut bytes).is_ok();
    read.then_some(bytes)
}

/// As a `traceparent`.
impl Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (
            u128::from_be_bytes(self.trace),
            u64::from_be_bytes(self.span),
        );
        let flags = u8::from(self.sampled);
        write!(f, "00-{trace:032x}-{span:016x}-{flags:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written_alike() {
        let read = read(GOOD).unwrap();
        assert!(read.sampled);
        assert_eq!(read.to_string(), GOOD);
    }

    #[test]
    fn the_flag_alone_says_whether_it_is_sampled() {
        let sampled = |flags: &str| read(&GOOD.replace("-01", flags)).unwrap().sampled;
        assert!(sampled("-03") && !sampled("-00") && !sampled("-02"));
    }

    #[test]
    fn a_later_version_may_say_more() {
        let later = GOOD.replacen("00-", "01-", 1);
        assert!(read(&later).is_some() && read(&format!("{later}-more")).is_some());
        assert!(read(&format!("{later}more")).is_none());
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        for wrong in [
            "",
            "00",
            &GOOD[1..],
            &format!("{GOOD}-more"),
            &GOOD.replacen("00-", "ff-", 1),
            &GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
            &GOOD.to_uppercase(),
            &GOOD.replace('a', "g"),
            &GOOD.replace("c-b", "cb-"),
            "é0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let mut twice = HeaderMap::new();
        twice.append(TRACEPARENT, GOOD.parse().unwrap());
        assert!(parent(&twice).is_some());
        twice.append(TRACEPARENT, GOOD.parse().unwrap());
        assert_eq!(parent(&twice), None);
    }
}
