//! Plays a script as if it came from a socket: the one part of the sandbox that knows time.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::time::Sleep;

use super::{Script, Step};

/// The body of a script, piece by piece. Dropped, it simply ends.
pub struct Playback {
    steps: Box<dyn Iterator<Item = Step> + Send>,
    sleep: Option<Pin<Box<Sleep>>>,
    cut: bool,
}

/// The script cut the connection before the answer's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutOff;

impl Playback {
    /// To be played inside a tokio runtime. Status and content type stay with the caller.
    pub fn new(script: Script) -> Self {
        Self {
            steps: script.steps,
            sleep: None,
            cut: false,
        }
    }

    /// The next piece; `None` at the proper end, and after a `CutOff`.
    pub fn poll_piece(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, CutOff>>> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(cx));
                self.sleep = None;
            }
            if self.cut {
                return Poll::Ready(None);
            }
            match self.steps.next() {
                None => return Poll::Ready(None),
                Some(Step::Send(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Some(Step::Sleep(duration)) => {
                    self.sleep = Some(Box::pin(tokio::time::sleep(duration)));
                }
                Some(Step::Cut) => {
                    self.cut = true;
                    return Poll::Ready(Some(Err(CutOff)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::*;
    use crate::provider::sandbox::{Endpoint, answer};

    async fn played(lines: &str) -> (Vec<Result<Bytes, CutOff>>, Duration) {
        let request = serde_json::json!({
            "model": "sandbox-agent",
            "messages": [{"role": "user", "content": lines}],
        });
        let script = answer(Endpoint::Chat, request.to_string().as_bytes(), 1, 0);
        let mut playback = Playback::new(script);
        let begun = tokio::time::Instant::now();
        let mut pieces = Vec::new();
        while let Some(piece) = poll_fn(|cx| Pin::new(&mut playback).poll_piece(cx)).await {
            pieces.push(piece);
        }
        (pieces, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_takes_its_time() {
        let (pieces, took) = played("sleep 90000\nsay hi").await;
        assert_eq!(pieces.len(), 1);
        assert_eq!(took.as_secs(), 90);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_is_an_error_and_the_last_thing_that_comes() {
        let (pieces, _) = played("say hi\nbreak").await;
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[1], Err(CutOff));
    }
}
