//! Errors in OpenAI's shape.

use std::time::Duration;

use serde_json::json;

use super::{Endpoint, Script};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub status: u16,
    pub message: String,
    pub param: Option<&'static str>,
    pub code: Option<&'static str>,
}

impl Refusal {
    /// The request is wrong at `param`.
    pub fn invalid(param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self {
            status: 400,
            message: message.into(),
            param,
            code: None,
        }
    }

    /// OpenAI answers an unknown model 404 on Chat and 400 on Responses.
    pub fn unknown_model(endpoint: Endpoint, model: &str) -> Self {
        let (status, message, param) = match endpoint {
            Endpoint::Chat => (
                404,
                format!("The model `{model}` does not exist or you do not have access to it."),
                None,
            ),
            Endpoint::Responses => (
                400,
                format!("The requested model '{model}' does not exist."),
                Some("model"),
            ),
        };
        Self {
            status,
            message,
            param,
            code: Some("model_not_found"),
        }
    }

    /// What `fail STATUS` asks for.
    pub fn asked_for(status: u16) -> Self {
        let message = format!("The sandbox fails with status {status}, as asked.");
        let code = match status {
            401 => Some("invalid_api_key"),
            402 => Some("insufficient_quota"),
            429 => Some("rate_limit_exceeded"),
            _ => None,
        };
        Self {
            status,
            message,
            param: None,
            code,
        }
    }

    pub fn into_script(self, sleep: Duration) -> Script {
        let body = json!({"error": {
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.code,
        }});
        Script::json(self.status, sleep, &body, false)
    }

    fn kind(&self) -> &'static str {
        match self.status {
            401 => "authentication_error",
            402 => "insufficient_quota",
            403 => "permission_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }
}
