//! What is sent of a waiting call: JSON that Slack shows as it comes, with the same for programs
//! under `metadata`. No arguments, unless the configuration says so.

use serde_json::{Value, json};

use super::sign::link_token;
use crate::{
    config::{Secret, Webhook},
    engine::names::clean_name,
    store::approvals::Approval,
};

/// Longer arguments are cut: Slack takes 3000 characters in a block. Characters.
const MOST_SHOWN: usize = 1000;

/// `console` ends without a slash.
pub fn message(webhook: &Webhook, secret: &Secret, console: &str, approval: &Approval) -> Value {
    let token = link_token(secret, &approval.id, approval.expires_at_ms);
    let url = format!("{console}/decide/{}/{token}", approval.id);
    let tool = clean_name(&approval.tool);
    let (key, tenant) = (&approval.key, &approval.tenant);
    let rule = escaped(&approval.rule);
    let text = format!(
        "A call of `{tool}` waits for a person: asked for by key {key} of {tenant}, held by {rule}."
    );
    let arguments = approval.arguments.as_ref();
    let arguments = arguments.filter(|_| webhook.include_arguments);
    let mut blocks = vec![section(text.clone())];
    if let Some(arguments) = arguments {
        blocks.push(section(format!("```{}```", shown(arguments))));
    }
    blocks.push(section(format!("<{url}|Look at it and decide>")));
    json!({
        "text": text,
        "blocks": blocks,
        "metadata": {
            "event_type": "tallygate_approval_opened",
            "event_payload": {
                "id": approval.id,
                "tool": tool,
                "key": key,
                "tenant": tenant,
                "run": approval.run,
                "policy": approval.policy,
                "rule": approval.rule,
                "arguments_sha256": approval.digest,
                "arguments": arguments,
                "request_id": approval.request_id,
                "created_at": approval.created_at_ms,
                "expires_at": approval.expires_at_ms,
                "url": url,
            },
        },
    })
}

fn section(text: String) -> Value {
    json!({ "type": "section", "text": { "type": "mrkdwn", "text": text } })
}

/// A model wrote them: they must not end the block that shows them, nor mention anybody.
fn shown(arguments: &str) -> String {
    let cut: String = arguments.chars().take(MOST_SHOWN).collect();
    let end = if cut.len() < arguments.len() {
        "…"
    } else {
        ""
    };
    escaped(&cut).replace('`', "'") + end
}

/// As Slack wants it.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}
