//! Answers that come in another shape than the client asked for: a JSON body to a request for a
//! stream, and the reverse.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};

use super::{
    super::answer, Body, KEPT, Rejection, collect::LARGEST_BODY, keep, mark_json, mark_stream,
    stream::Relay,
};
use crate::engine::call::Api;

/// A judged body as a stream.
pub(super) fn streamed(api: Api, body: &Bytes, hide_usage: bool) -> Option<Response<Body>> {
    let stream = answer::as_stream(api, body, hide_usage)?;
    let mut response = Response::new(Body::whole(stream));
    mark_stream(response.headers_mut());
    Some(response)
}

impl Relay {
    /// Takes the whole stream in and answers with one body.
    pub(super) async fn into_body(
        mut self,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Rejection> {
        let mut stream = BytesMut::new();
        while !self.answer.is_over() {
            std::future::poll_fn(|cx| self.poll_source(cx)).await;
            for piece in self.ready.drain(..) {
                stream.extend_from_slice(&piece);
            }
            if stream.len() > LARGEST_BODY {
                let words = "The answer is too large.";
                self.answer.stop("malformed_output", words, &mut self.ready);
            }
        }
        let failed = self.answer.tally().error.is_some() || !self.answer.refused().is_empty();
        let body = answer::as_body(self.permit.api(), &stream);
        let (false, Some(body)) = (failed, body) else {
            return Err(self.give_up());
        };
        self.settle();
        let mut response = Response::new(Body::whole(body));
        keep(headers, response.headers_mut(), KEPT);
        mark_json(response.headers_mut());
        Ok(response)
    }
}
