//! What of earlier answers a request builds on: it must be the key's own, and what it adds to
//! the input must be known wherever tokens or money are counted.

use serde_json::json;

use super::{admit::Asked, rejection::Rejection, resolve::Target};
use crate::{
    books::{Books, Purse},
    engine::{
        call::{ChatRequest, Reference, offers::Patch},
        responses::Unanswered,
    },
    store::Owner,
};

/// What the earlier answers come to.
#[derive(Default)]
pub struct Earlier {
    /// No more than this is added to the input. Tokens.
    pub tokens: u64,
    /// What has to differ upstream.
    pub patches: Vec<Patch>,
}

/// # Errors
/// `ResponseNotFound` for what another key was given, or nobody that we know of.
pub async fn check(
    books: &Books,
    purse: &Purse,
    asked: &Asked<'_>,
    (call, body): (&ChatRequest, &[u8]),
    target: &Target,
) -> Result<Earlier, Rejection> {
    if call.content.unseen > 0 && purse.needs_cap() {
        let what = "The request refers to a file that only the provider has";
        return Err(unbounded(what, "file_id"));
    }
    let mut earlier = Earlier::default();
    if call.references.is_empty() {
        return Ok(earlier);
    }
    let ids = call.references.iter().map(|one| one.id.clone()).collect();
    let owners = books.owners(ids).await?;
    for (reference, owner) in call.references.iter().zip(owners) {
        let owner = owner.filter(|owner| {
            let ours = owner.provider.is_empty() && reference.item.is_some();
            owner.key == asked.key.name && (ours || owner.provider == target.provider.name)
        });
        let owner = owner.ok_or_else(|| Rejection::ResponseNotFound {
            id: reference.id.clone(),
            param: Some(reference.param),
        })?;
        if owner.tokens.is_none() && purse.needs_cap() {
            let what = "The request builds on an answer whose usage the provider did not tell";
            return Err(unbounded(what, reference.param));
        }
        earlier.add(call, body, reference, owner);
    }
    Ok(earlier)
}

impl Earlier {
    fn add(&mut self, call: &ChatRequest, body: &[u8], reference: &Reference, owner: Owner) {
        self.tokens = self.tokens.saturating_add(owner.tokens.unwrap_or(0));
        let patch = match (&reference.item, owner.unanswered) {
            // No provider knows our messages, so that it is told what they said.
            (Some(at), _) if owner.provider.is_empty() => Some(Patch {
                at: at.clone(),
                text: OUR_MESSAGE.into(),
            }),
            (None, Some(unanswered)) => call.with_results(body, &results(&unanswered)),
            _ => None,
        };
        if let Some(patch) = patch {
            self.tokens = self.tokens.saturating_add(patch.text.len() as u64);
            self.patches.push(patch);
        }
    }
}

/// A provider does not go on with an answer whose calls have no results.
fn results(unanswered: &str) -> String {
    let calls: Vec<Unanswered> = serde_json::from_str(unanswered).unwrap_or_default();
    let result = |call: &Unanswered| {
        json!({"type": call.kind, "call_id": call.call_id, "output": RESULT}).to_string()
    };
    calls.iter().map(result).collect::<Vec<_>>().join(",")
}

const RESULT: &str = "Blocked by Tallygate: the call was not run.";
const OUR_MESSAGE: &str =
    r#"{"role":"assistant","content":"Blocked by Tallygate: a tool call was not run."}"#;

fn unbounded(what: &str, param: &str) -> Rejection {
    let message = format!(
        "{what}, so that nobody here knows how many tokens it costs. This key has a budget in \
         tokens or money; send the content itself."
    );
    Rejection::InvalidRequest {
        message,
        param: Some(param.to_owned()),
    }
}
