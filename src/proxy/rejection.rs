//! Every way in which we turn a request down, and the one place that gives each its status,
//! code and words. No other file of the data plane names a status code of ours.
//!
//! The message alone tells the whole story, since some clients show nothing else.

use std::{fmt::Write as _, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::{
    books::{Refusal, Shortfall},
    engine::{
        chain::{Block, clean_name, guard_object, notice},
        guard::tool_offers::OfferDenied,
    },
};

/// Tells an SDK whether sending the same request again can help.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// SDKs ignore or misread longer waits: from here on they are told not to retry by themselves.
const LONGEST_RETRY: Duration = Duration::from_millis(60_010);

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
    Unreachable {
        provider: String,
    },
    Timeout {
        provider: String,
        after: Duration,
    },
    /// It refused our credential: not the client's fault, and not for the client to see.
    Credential {
        provider: String,
    },
    /// The answer broke off or could not be read.
    Broken {
        provider: String,
    },
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

struct Shape {
    status: StatusCode,
    kind: &'static str,
    code: &'static str,
    message: String,
    param: Option<String>,
    /// `Some(false)`: the same request cannot succeed soon, so the SDK should not repeat it.
    retry: Option<bool>,
    retry_after: Option<Duration>,
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
            _ => None,
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

    /// The one exhaustive match from reason to answer.
    fn shape(&self) -> Shape {
        use StatusCode as S;
        match self {
            Self::InvalidKey(fault) => Shape::new(
                S::UNAUTHORIZED,
                AUTH,
                "invalid_api_key",
                key_message(*fault),
            ),
            Self::KeyGuessing { retry_after } => Shape {
                retry_after: Some(*retry_after),
                ..Shape::new(
                    S::TOO_MANY_REQUESTS,
                    "requests",
                    "rate_limit_exceeded",
                    "Too many requests with keys that Tallygate does not know came from your \
                     address. Wait, then send a valid key.",
                )
            },
            Self::UnknownPath => Shape::new(
                S::NOT_FOUND,
                INVALID,
                "endpoint_not_allowed",
                "Tallygate does not serve this path. Served: POST /v1/chat/completions, \
                 POST /v1/responses, GET and DELETE /v1/responses/{id}, GET /v1/models, \
                 GET /v1/models/{id}.",
            ),
            Self::WrongMethod { allow } => Shape::new(
                S::METHOD_NOT_ALLOWED,
                INVALID,
                "endpoint_not_allowed",
                format!("Tallygate serves this path with {allow} only."),
            ),
            Self::EndpointNotAllowed { endpoint } => Shape::new(
                S::FORBIDDEN,
                PERMISSION,
                "endpoint_not_allowed",
                format!("This Tallygate key may not use the endpoint \"{endpoint}\"."),
            ),
            Self::InvalidRequest { message, param } => Shape {
                param: param.clone(),
                ..Shape::new(S::BAD_REQUEST, INVALID, "invalid_request", message.clone())
            },
            Self::ResponseNotFound { id, param } => Shape {
                param: param.map(str::to_owned),
                ..Shape::new(
                    S::NOT_FOUND,
                    INVALID,
                    "response_not_found",
                    format!("This Tallygate key has no response {:?}.", clean_name(id)),
                )
            },
            Self::UnreadableBody { coding } => Shape::new(
                S::UNSUPPORTED_MEDIA_TYPE,
                INVALID,
                "invalid_request",
                format!(
                    "The request body's Content-Encoding \"{coding}\" cannot be read, so it \
                     cannot be judged. Send it plain, or as gzip, deflate, br or zstd."
                ),
            ),
            Self::BodyTooLarge { limit } => Shape::new(
                S::PAYLOAD_TOO_LARGE,
                INVALID,
                "input_too_large",
                format!(
                    "The request body is larger than {limit} bytes, the limit set by \
                     server.max_request_body."
                ),
            ),
            Self::BodyTimeout => Shape::new(
                S::REQUEST_TIMEOUT,
                INVALID,
                "invalid_request",
                "The request body did not arrive in time.",
            ),
            Self::InputTooLong { chars, limit } => Shape {
                param: Some("messages".into()),
                ..Shape::new(
                    S::BAD_REQUEST,
                    INVALID,
                    "context_length_exceeded",
                    format!(
                        "The messages hold {chars} characters; this key's policy allows {limit} \
                         (input.max_chars)."
                    ),
                )
            },
            Self::InputUnsupported { pattern } => Shape {
                param: Some("messages".into()),
                ..Shape::new(
                    S::BAD_REQUEST,
                    INVALID,
                    "input_unsupported",
                    format!(
                        "The messages hold what this key's policy does not support \
                         (input.unsupported_patterns, entry {}).",
                        pattern + 1
                    ),
                )
            },
            Self::ModelDenied { model } => Shape {
                param: Some("model".into()),
                ..Shape::new(
                    S::FORBIDDEN,
                    PERMISSION,
                    "model_denied",
                    format!("This Tallygate key may not use the model {model:?}."),
                )
            },
            Self::ModelNotFound { model } => Shape {
                param: Some("model".into()),
                ..Shape::new(
                    S::NOT_FOUND,
                    INVALID,
                    "model_not_found",
                    format!(
                        "The model {model:?} does not exist here, or this key may not see it. \
                         GET /v1/models lists what it may use."
                    ),
                )
            },
            Self::SubstituteDenied { member } => Shape {
                param: Some(member.clone()),
                ..Shape::new(
                    S::FORBIDDEN,
                    PERMISSION,
                    "model_denied",
                    format!(
                        "The request member {member:?} lets the provider choose another model or \
                         place, past this key's rules. Remove it."
                    ),
                )
            },
            Self::ToolDenied(denied) => Shape {
                param: Some(denied.param.to_owned()),
                ..Shape::new(
                    S::FORBIDDEN,
                    PERMISSION,
                    denied.code,
                    denied.message.clone(),
                )
            },
            Self::PolicyUnavailable { reason } => Shape::new(
                S::SERVICE_UNAVAILABLE,
                SERVER,
                "policy_unavailable",
                format!("The policy of this Tallygate key cannot be used: {reason}."),
            )
            .no_retry(),
            Self::PriceUnknown { model } => Shape {
                param: Some("model".into()),
                ..Shape::new(
                    S::FORBIDDEN,
                    PERMISSION,
                    "price_unknown",
                    format!(
                        "The model {model:?} has no price, and this key has a cost budget. The \
                         operator can set one under [models.{model:?}] price."
                    ),
                )
            },
            Self::Limit(shortfall) => limit_shape(shortfall),
            Self::Burst { retry_after } => Shape {
                retry_after: Some(*retry_after),
                ..Shape::new(
                    S::TOO_MANY_REQUESTS,
                    "requests",
                    "rate_limit_exceeded",
                    "More requests came at once than this key's policy lets through (limits.burst).",
                )
            },
            Self::GuardUnavailable => Shape::new(
                S::SERVICE_UNAVAILABLE,
                SERVER,
                "guard_unavailable",
                "Tallygate cannot reach its store, so it cannot know whether this request fits \
                 its limits, and refuses it.",
            )
            .no_retry(),
            Self::ProviderUnavailable { provider } => Shape::new(
                S::SERVICE_UNAVAILABLE,
                SERVER,
                "provider_unavailable",
                format!("Tallygate has no credential for the provider \"{provider}\"."),
            )
            .no_retry(),
            Self::CallsBlocked { .. } => Shape::new(
                S::FORBIDDEN,
                PERMISSION,
                "tool_call_blocked",
                "A tool call is blocked.",
            )
            .no_retry(),
            Self::Upstream(fault) => upstream_shape(fault),
        }
    }
}

const AUTH: &str = "authentication_error";
const INVALID: &str = "invalid_request_error";
const PERMISSION: &str = "permission_error";
const SERVER: &str = "server_error";

impl Shape {
    fn new(
        status: StatusCode,
        kind: &'static str,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let message = message.into();
        Self {
            status,
            kind,
            code,
            message,
            param: None,
            retry: None,
            retry_after: None,
        }
    }

    fn no_retry(self) -> Self {
        Self {
            retry: Some(false),
            ..self
        }
    }
}

fn key_message(fault: KeyFault) -> &'static str {
    match fault {
        KeyFault::Missing => "No Tallygate key was sent. Send it as \"Authorization: Bearer KEY\".",
        KeyFault::Unknown => {
            "Tallygate does not know this key. It is Tallygate's own key that is wrong here, not \
             one of a model provider."
        }
        KeyFault::Disabled => "This Tallygate key is disabled.",
        KeyFault::Expired => "This Tallygate key has expired.",
        KeyFault::Network => "This Tallygate key may not be used from your network address.",
    }
}

/// 429 for what frees up by the minute, 402 for a budget: SDKs repeat a 429, and an exhausted
/// budget must not be asked for again and again.
fn limit_shape(short: &Shortfall) -> Shape {
    let mut message = format!(
        "The limit {} of {} is used up: limit {}, used {}, reserved {}, this request needs {}.",
        short.name,
        short.subject,
        short.amount(short.limit),
        short.amount(short.used),
        short.amount(short.reserved),
        short.amount(short.needed),
    );
    if !short.is_rate() {
        match short.resets_at_text() {
            Some(instant) => {
                let _ = write!(message, " It will reset at {instant}.");
            }
            None => message.push_str(" It does not reset by itself."),
        }
        return Shape::new(
            StatusCode::PAYMENT_REQUIRED,
            "insufficient_quota",
            "insufficient_quota",
            message,
        )
        .no_retry();
    }
    let wait = short.retry_after;
    if let Some(wait) = wait {
        let _ = write!(
            message,
            " Try again in {} s.",
            wait.as_millis().div_ceil(1000).max(1)
        );
    }
    let hopeless = wait.is_none_or(|wait| wait > LONGEST_RETRY);
    Shape {
        retry: hopeless.then_some(false),
        retry_after: wait,
        ..Shape::new(
            StatusCode::TOO_MANY_REQUESTS,
            short.unit.name(),
            "rate_limit_exceeded",
            message,
        )
    }
}

fn upstream_shape(fault: &UpstreamFault) -> Shape {
    let bad = |code, message| Shape::new(StatusCode::BAD_GATEWAY, SERVER, code, message);
    match fault {
        UpstreamFault::Unreachable { provider } => bad(
            "upstream_unreachable",
            format!("The provider \"{provider}\" could not be reached."),
        ),
        UpstreamFault::Timeout { provider, after } => Shape {
            status: StatusCode::GATEWAY_TIMEOUT,
            ..bad(
                "upstream_timeout",
                format!("The provider \"{provider}\" did not answer within {after:?}."),
            )
        },
        UpstreamFault::Credential { provider } => bad(
            "upstream_credential",
            format!(
                "The provider \"{provider}\" refused Tallygate's own credential. Your key is \
                 fine; the operator has to look at the provider's key."
            ),
        )
        .no_retry(),
        UpstreamFault::Broken { provider } => bad(
            "upstream_broken",
            format!("The answer of the provider \"{provider}\" broke off or could not be read."),
        ),
        UpstreamFault::Answered { status, .. } => Shape {
            status: *status,
            ..bad(
                "upstream_error",
                "The provider answered with an error.".to_owned(),
            )
        },
    }
}
