//! Every way in which we turn a request down, and the one place that gives each its status,
//! code and words. No other file of the data plane names a status code of ours.
//!
//! The message alone tells the whole story, since some clients show nothing else.

mod shape;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

use self::shape::Shape;
use crate::{
    books::{Refusal, Shortfall},
    engine::{
        budget::LimitNote,
        chain::{Block, guard_object, notice},
        guard::tool_offers::OfferDenied,
        run::Stop,
    },
};

/// Tells an SDK whether sending the same request again can help.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Why a request is not served. Each variant carries what its message needs.
#[derive(Debug)]
pub enum Rejection {
    InvalidKey(KeyFault),
    /// Too many failed keys from one address.
    KeyGuessing {
        retry_after: Duration,
    },
    UnknownPath,
    /// Holds what the path does answer to, as in an `Allow` header.
    WrongMethod {
        allow: &'static str,
    },
    EndpointNotAllowed {
        endpoint: &'static str,
    },
    InvalidRequest {
        message: String,
        param: Option<String>,
    },
    UnreadableBody {
        coding: String,
    },
    BodyTooLarge {
        limit: u64,
    },
    BodyTimeout,
    InputTooLong {
        chars: u64,
        limit: u64,
    },
    InputUnsupported {
        pattern: usize,
    },
    ModelDenied {
        model: String,
    },
    ModelNotFound {
        model: String,
    },
    /// An answer, or an item of one, that this key did not get, or that never was.
    ResponseNotFound {
        id: String,
        param: Option<&'static str>,
    },
    /// A run that this key did not make, or that never was.
    RunNotFound {
        id: String,
    },
    SubstituteDenied {
        member: String,
    },
    ToolDenied(Box<OfferDenied>),
    PolicyUnavailable {
        reason: String,
    },
    PriceUnknown {
        model: String,
    },
    Limit(Box<Shortfall>),
    /// The run may not go on.
    RunStopped(Box<Stop>),
    /// More at once than the policy's `limits.burst`.
    Burst {
        retry_after: Duration,
    },
    /// The store does not answer and the configuration says to refuse.
    GuardUnavailable,
    /// The credential of this provider was not found when we started.
    ProviderUnavailable {
        provider: String,
    },
    /// The model proposed calls that may not pass, and the answer for that is an error.
    CallsBlocked {
        blocks: Vec<Block>,
    },
    /// What the provider answered with, made OpenAI-shaped. Its message is passed on.
    Upstream(Box<UpstreamFault>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFault {
    Missing,
    Unknown,
    Disabled,
    Expired,
    Network,
}

/// How an attempt at a provider failed.
#[derive(Debug)]
pub enum UpstreamFault {
    /// No connection, or it broke before an answer.
    Unreachable { provider: String },
    Timeout {
        provider: String,
        after: Duration,
        /// There was a connection: the request may have been worked on.
        connected: bool,
    },
    /// It refused our credential: not the client's fault, and not for the client to see.
    Credential { provider: String },
    /// The answer broke off or could not be read.
    Broken { provider: String },
    /// An error answer: its status, its body in OpenAI's shape, headers worth keeping.
    Answered {
        status: StatusCode,
        error: Value,
        headers: HeaderMap,
    },
}

/// What the client is told.
#[derive(Debug)]
pub struct Told {
    pub status: StatusCode,
    pub code: &'static str,
    pub body: Bytes,
    pub headers: HeaderMap,
}

/// Where the decision came from, for the `guard` object.
#[derive(Debug, Clone, Copy, Default)]
pub struct Source<'a> {
    pub decision: &'a str,
    /// `id@version`, once a policy was known.
    pub policy: Option<&'a str>,
}

impl From<UpstreamFault> for Rejection {
    fn from(fault: UpstreamFault) -> Self {
        Self::Upstream(Box::new(fault))
    }
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Short(shortfall) => Self::Limit(shortfall),
            Refusal::Unavailable => Self::GuardUnavailable,
        }
    }
}

impl Rejection {
    /// The rule that said no, by its name in the configuration.
    pub fn rule(&self) -> Option<String> {
        match self {
            Self::Limit(shortfall) => Some(shortfall.name.to_owned()),
            Self::ToolDenied(denied) => Some(denied.rule.to_owned()),
            Self::RunStopped(stop) => Some(stop.rule.to_owned()),
            _ => None,
        }
    }

    /// How the limit stands that said no.
    pub fn limits(&self) -> Vec<LimitNote> {
        match self {
            Self::Limit(shortfall) => vec![shortfall.note()],
            _ => Vec::new(),
        }
    }

    /// The code by which a run ends, if it does by this.
    pub fn ends_run(&self) -> Option<&'static str> {
        match self {
            Self::Limit(short) if short.name == "run.max_iterations" => Some("max_steps_exceeded"),
            Self::Limit(short) if matches!(short.name, "run.max_cost_usd" | "run.max_tokens") => {
                Some("budget_exceeded")
            }
            _ => None,
        }
    }

    /// As the client is told.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Upstream(fault) => match &**fault {
                UpstreamFault::Answered { status, .. } => *status,
                _ => self.shape().status,
            },
            _ => self.shape().status,
        }
    }

    /// Status, headers and body for the client.
    pub fn tell(&self, source: Source<'_>) -> Told {
        if let Self::Upstream(fault) = self
            && let UpstreamFault::Answered {
                status,
                error,
                headers,
            } = &**fault
        {
            return Told {
                status: *status,
                code: "upstream_error",
                body: json!({ "error": error }).to_string().into(),
                headers: headers.clone(),
            };
        }
        let mut shape = self.shape();
        let mut guard = self.guard(shape.code, source);
        if let Self::CallsBlocked { blocks } = self {
            shape.message = notice(blocks, source.decision);
            guard = guard_object(blocks, source.policy.unwrap_or_default(), source.decision);
        }
        let error = json!({
            "message": shape.message,
            "type": shape.kind,
            "param": shape.param,
            "code": shape.code,
        });
        let body = json!({ "error": error, "guard": guard });
        Told {
            status: shape.status,
            code: shape.code,
            body: body.to_string().into(),
            headers: self.headers(&shape),
        }
    }

    fn headers(&self, shape: &Shape) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Self::WrongMethod { allow } = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if let Some(wait) = shape.retry_after {
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(ms));
        }
        if let Some(retry) = shape.retry {
            let text = if retry { "true" } else { "false" };
            headers.insert(SHOULD_RETRY, HeaderValue::from_static(text));
        }
        headers
    }

    fn guard(&self, code: &str, source: Source<'_>) -> Value {
        let mut guard = Map::new();
        guard.insert("code".into(), code.into());
        guard.insert("decision".into(), source.decision.into());
        if let Some((policy, version)) = source.policy.and_then(|policy| policy.split_once('@')) {
            guard.insert("policy".into(), policy.into());
            guard.insert("version".into(), version.parse::<u32>().ok().into());
        }
        if let Some(rule) = self.rule() {
            guard.insert("rule".into(), rule.into());
        }
        if let Self::Limit(shortfall) = self {
            guard.insert(
                "limit".into(),
                json!({
                    "name": shortfall.name,
                    "subject": shortfall.subject,
                    "unit": shortfall.unit.name(),
                    "limit": shortfall.limit,
                    "used": shortfall.used,
                    "reserved": shortfall.reserved,
                    "needed": shortfall.needed,
                    "resets_at": shortfall.resets_at_text(),
                }),
            );
        }
        Value::Object(guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It takes a minute to happen.
    #[test]
    fn a_body_that_does_not_arrive_is_told_like_every_other_refusal() {
        let told = Rejection::BodyTimeout.tell(Source::default());
        assert_eq!(told.status, StatusCode::REQUEST_TIMEOUT);
        let body: Value = serde_json::from_slice(&told.body).unwrap();
        let error = body["error"].as_object().unwrap();
        let names: Vec<_> = error.keys().map(String::as_str).collect();
        assert_eq!(names, ["message", "type", "param", "code"]);
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains("did not arrive")
        );
        assert_eq!(error["code"], "invalid_request");
    }
}
