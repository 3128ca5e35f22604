//! What each reason looks like to a client: status, type, code, words, and whether to try again.

use std::{fmt::Write as _, time::Duration};

use http::StatusCode;

use super::{KeyFault, Rejection, UpstreamFault};
use crate::{books::Shortfall, engine::names::clean_name};

/// SDKs ignore or misread longer waits: from here on they are told not to retry by themselves.
const LONGEST_RETRY: Duration = Duration::from_millis(60_010);

pub(super) struct Shape {
    pub status: StatusCode,
    pub kind: &'static str,
    pub code: &'static str,
    pub message: String,
    pub param: Option<String>,
    /// `Some(false)`: the same request cannot succeed soon, so the SDK should not repeat it.
    pub retry: Option<bool>,
    pub retry_after: Option<Duration>,
}

impl Rejection {
    pub(super) fn shape(&self) -> Shape {
        match self {
            Self::Limit(short) => return run_shape(short).unwrap_or_else(|| limit_shape(short)),
            Self::Upstream(fault) => return upstream_shape(fault),
            _ => {}
        }
        let (status, kind, code) = self.category();
        let shape = Shape {
            param: self.param(),
            retry_after: self.retry_after(),
            ..Shape::new(status, kind, code, self.message())
        };
        match self {
            Self::PolicyUnavailable { .. }
            | Self::GuardUnavailable
            | Self::ProviderUnavailable { .. }
            | Self::RunStopped(_)
            | Self::CallsBlocked { .. } => shape.no_retry(),
            _ => shape,
        }
    }

    /// Status, type and code: the one exhaustive table from reason to answer.
    fn category(&self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::InvalidKey(_) => (S::UNAUTHORIZED, AUTH, "invalid_api_key"),
            Self::KeyGuessing { .. } | Self::Burst { .. } | Self::Limit(_) => {
                (S::TOO_MANY_REQUESTS, "requests", "rate_limit_exceeded")
            }
            Self::UnknownPath => (S::NOT_FOUND, INVALID, "endpoint_not_allowed"),
            Self::WrongMethod { .. } => (S::METHOD_NOT_ALLOWED, INVALID, "endpoint_not_allowed"),
            Self::EndpointNotAllowed { .. } => (S::FORBIDDEN, PERMISSION, "endpoint_not_allowed"),
            Self::InvalidRequest { .. } => (S::BAD_REQUEST, INVALID, "invalid_request"),
            Self::UnreadableBody { .. } => (S::UNSUPPORTED_MEDIA_TYPE, INVALID, "invalid_request"),
            Self::BodyTooLarge { .. } => (S::PAYLOAD_TOO_LARGE, INVALID, "input_too_large"),
            Self::BodyTimeout => (S::REQUEST_TIMEOUT, INVALID, "invalid_request"),
            Self::InputTooLong { .. } => (S::BAD_REQUEST, INVALID, "context_length_exceeded"),
            Self::InputUnsupported { .. } => (S::BAD_REQUEST, INVALID, "input_unsupported"),
            Self::ModelDenied { .. } | Self::SubstituteDenied { .. } => {
                (S::FORBIDDEN, PERMISSION, "model_denied")
            }
            Self::ModelNotFound { .. } => (S::NOT_FOUND, INVALID, "model_not_found"),
            Self::ResponseNotFound { .. } => (S::NOT_FOUND, INVALID, "response_not_found"),
            Self::RunNotFound { .. } => (S::NOT_FOUND, INVALID, "run_not_found"),
            Self::ToolDenied(denied) => (S::FORBIDDEN, PERMISSION, denied.code),
            Self::PolicyUnavailable { .. } => {
                (S::SERVICE_UNAVAILABLE, SERVER, "policy_unavailable")
            }
            Self::PriceUnknown { .. } => (S::FORBIDDEN, PERMISSION, "price_unknown"),
            Self::GuardUnavailable => (S::SERVICE_UNAVAILABLE, SERVER, "guard_unavailable"),
            Self::ProviderUnavailable { .. } => {
                (S::SERVICE_UNAVAILABLE, SERVER, "provider_unavailable")
            }
            Self::CallsBlocked { .. } => (S::FORBIDDEN, PERMISSION, "tool_call_blocked"),
            Self::RunStopped(stop) => (S::FORBIDDEN, PERMISSION, stop.code),
            Self::Upstream(_) => (S::BAD_GATEWAY, SERVER, "upstream_error"),
        }
    }

    /// The member of the request that is at fault.
    fn param(&self) -> Option<String> {
        match self {
            Self::InvalidRequest { param, .. } => param.clone(),
            Self::ResponseNotFound { param, .. } => param.map(str::to_owned),
            Self::InputTooLong { .. } | Self::InputUnsupported { .. } => Some("messages".into()),
            Self::ModelDenied { .. } | Self::ModelNotFound { .. } | Self::PriceUnknown { .. } => {
                Some("model".into())
            }
            Self::SubstituteDenied { member } => Some(member.clone()),
            Self::ToolDenied(denied) => Some(denied.param.to_owned()),
            _ => None,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::KeyGuessing { retry_after } | Self::Burst { retry_after } => Some(*retry_after),
            _ => None,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::InvalidKey(fault) => key_message(*fault).to_owned(),
            Self::KeyGuessing { .. } => KEY_GUESSING.to_owned(),
            Self::UnknownPath => UNKNOWN_PATH.to_owned(),
            Self::WrongMethod { allow } => {
                format!("Tallygate serves this path with {allow} only.")
            }
            Self::EndpointNotAllowed { endpoint } => {
                format!("This Tallygate key may not use the endpoint \"{endpoint}\".")
            }
            Self::BodyTimeout => "The request body did not arrive in time.".to_owned(),
            Self::RunStopped(stop) => stop.message.clone(),
            Self::PolicyUnavailable { reason } => {
                format!("The policy of this Tallygate key cannot be used: {reason}.")
            }
            Self::Burst { .. } => BURST.to_owned(),
            Self::GuardUnavailable => GUARD_UNAVAILABLE.to_owned(),
            Self::ProviderUnavailable { provider } => {
                format!("Tallygate has no credential for the provider \"{provider}\".")
            }
            request => request.message_on_request(),
        }
    }

    /// Of those that find fault with what the client asks for.
    fn message_on_request(&self) -> String {
        match self {
            Self::InvalidRequest { message, .. } => message.clone(),
            Self::ToolDenied(denied) => denied.message.clone(),
            Self::ResponseNotFound { id, .. } => {
                format!("This Tallygate key has no response {:?}.", clean_name(id))
            }
            Self::RunNotFound { id } => {
                format!("This Tallygate key has no run {:?}.", clean_name(id))
            }
            Self::UnreadableBody { coding } => format!(
                "The request body's Content-Encoding \"{coding}\" cannot be read, so it cannot \
                 be judged. Send it plain, or as gzip, deflate, br or zstd."
            ),
            Self::BodyTooLarge { limit } => format!(
                "The request body is larger than {limit} bytes, the limit set by \
                 server.max_request_body."
            ),
            Self::InputTooLong { chars, limit } => format!(
                "The messages hold {chars} characters; this key's policy allows {limit} \
                 (input.max_chars)."
            ),
            Self::InputUnsupported { pattern } => format!(
                "The messages hold what this key's policy does not support \
                 (input.unsupported_patterns, entry {}).",
                pattern + 1
            ),
            Self::ModelDenied { model } => {
                format!("This Tallygate key may not use the model {model:?}.")
            }
            Self::ModelNotFound { model } => format!(
                "The model {model:?} does not exist here, or this key may not see it. \
                 GET /v1/models lists what it may use."
            ),
            Self::SubstituteDenied { member } => format!(
                "The request member {member:?} lets the provider choose another model or place, \
                 past this key's rules. Remove it."
            ),
            Self::PriceUnknown { model } => format!(
                "The model {model:?} has no price, and this key has a cost budget. The operator \
                 can set one under [models.{model:?}] price."
            ),
            // Those above, and those whose words are made where more is known. Each is named, so
            // that a new reason cannot be left without words unnoticed.
            Self::InvalidKey(_)
            | Self::KeyGuessing { .. }
            | Self::UnknownPath
            | Self::WrongMethod { .. }
            | Self::EndpointNotAllowed { .. }
            | Self::BodyTimeout
            | Self::RunStopped(_)
            | Self::PolicyUnavailable { .. }
            | Self::Burst { .. }
            | Self::GuardUnavailable
            | Self::ProviderUnavailable { .. }
            | Self::CallsBlocked { .. }
            | Self::Limit(_)
            | Self::Upstream(_) => String::new(),
        }
    }
}

const KEY_GUESSING: &str = "Too many requests with keys that Tallygate does not know came from \
                            your address. Wait, then send a valid key.";
const UNKNOWN_PATH: &str = "Tallygate does not serve this path. Served: POST /v1/chat/completions, \
                            POST /v1/responses, GET and DELETE /v1/responses/{id}, \
                            GET /v1/models, GET /v1/models/{id}.";
const BURST: &str =
    "More requests came at once than this key's policy lets through (limits.burst).";
const GUARD_UNAVAILABLE: &str = "Tallygate cannot reach its store, so it cannot know whether this \
                                 request fits its limits, and refuses it.";

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
/// Limits by which a run ends, or that it brought upon itself.
fn run_shape(short: &Shortfall) -> Option<Shape> {
    let (code, message) = match short.name {
        "run.max_iterations" => (
            "max_steps_exceeded",
            format!(
                "The {} may make {} requests (run.max_iterations), and has.",
                short.subject, short.limit
            ),
        ),
        "run.max_parallel_units" => (
            "parallel_units_exceeded",
            format!(
                "A run may have {} requests open at once (run.max_parallel_units), and has.",
                short.limit
            ),
        ),
        _ => return None,
    };
    Some(Shape::new(StatusCode::FORBIDDEN, PERMISSION, code, message).no_retry())
}

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
            short.code(),
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
            short.code(),
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
        UpstreamFault::Timeout {
            provider, after, ..
        } => Shape {
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
