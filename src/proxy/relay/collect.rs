//! A body read to its end, within bounds of size and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::proxy::{rejection::UpstreamFault, upstream::ReplyBody};

/// A larger whole answer cannot be held to be judged. Bytes.
pub(super) const LARGEST_BODY: usize = 64 << 20;

pub(super) enum Collecting {
    Broken,
    Stalled,
}

impl Collecting {
    pub fn of(self, provider: String, after: Duration) -> UpstreamFault {
        match self {
            Self::Broken => UpstreamFault::Broken { provider },
            Self::Stalled => UpstreamFault::Timeout {
                provider,
                after,
                connected: true,
            },
        }
    }
}

pub(super) async fn collect(
    body: &mut ReplyBody,
    most: usize,
    idle: Duration,
) -> Result<Bytes, Collecting> {
    let mut whole = BytesMut::new();
    let mut first: Option<Bytes> = None;
    loop {
        let piece = tokio::time::timeout(idle, body.piece())
            .await
            .map_err(|_| Collecting::Stalled)?;
        let piece = match piece {
            None => break,
            Some(piece) => piece.map_err(|_| Collecting::Broken)?,
        };
        if first.is_none() && whole.is_empty() {
            first = Some(piece);
            continue;
        }
        if let Some(first) = first.take() {
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&piece);
        if whole.len() > most {
            return Err(Collecting::Broken);
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}
