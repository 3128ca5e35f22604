//! What of earlier answers a request builds on: it must be the key's own, and what it adds to
//! the input must be known wherever tokens or money are counted.

use super::{admit::Asked, rejection::Rejection, resolve::Target};
use crate::{
    books::{Books, Purse},
    engine::call::ChatRequest,
};

/// How many tokens the earlier answers add to the input at most.
///
/// # Errors
/// `ResponseNotFound` for what another key was given, or nobody that we know of.
pub async fn check(
    books: &Books,
    purse: &Purse,
    asked: &Asked<'_>,
    call: &ChatRequest,
    target: &Target,
) -> Result<u64, Rejection> {
    if call.content.unseen > 0 && purse.needs_cap() {
        return Err(unbounded(
            "The request refers to a file that only the provider has",
            "file_id",
        ));
    }
    if call.references.is_empty() {
        return Ok(0);
    }
    let ids = call.references.iter().map(|one| one.id.clone()).collect();
    let owners = books.owners(ids).await?;
    let mut tokens = 0_u64;
    for (reference, owner) in call.references.iter().zip(owners) {
        let owner = owner
            .filter(|owner| owner.key == asked.key.name && owner.provider == target.provider.name);
        let owner = owner.ok_or_else(|| Rejection::ResponseNotFound {
            id: reference.id.clone(),
            param: Some(reference.param),
        })?;
        match owner.tokens {
            Some(more) => tokens = tokens.saturating_add(more),
            None if purse.needs_cap() => {
                let what = "The request builds on an answer whose usage the provider did not tell";
                return Err(unbounded(what, reference.param));
            }
            None => {}
        }
    }
    Ok(tokens)
}

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
