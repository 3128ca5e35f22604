//! `[models.…]`: aliases with their routes, and prices of the operator's own.

use std::collections::HashMap;

use super::{
    Alias,
    providers::Providers,
    reader::Table,
    values::{model, money, positive, text},
};
use crate::engine::pricing::OperatorPrice;

pub(super) fn models(root: &mut Table<'_>, providers: &Providers<'_>) -> HashMap<Box<str>, Alias> {
    root.named("models", |name, table| {
        (name.into(), alias(name, table, providers))
    })
    .into_iter()
    .flatten()
    .collect()
}

fn alias(name: &str, table: &mut Table<'_>, providers: &Providers<'_>) -> Alias {
    if let Err(message) = model(name) {
        table.place().mistake(message);
    }
    if let Some((provider, plain)) = providers.prefix_of(name) {
        table.place().mistake(format!(
            "{provider:?} is a provider, whose name is taken off before a model is judged; \
             write {plain:?}"
        ));
    }
    let routes = table.filled_list(
        "routes",
        "an empty list leads nowhere; remove it",
        |value| providers.route(text(value)?),
    );
    let price = table.table("price", price).flatten();
    let max_output_tokens = table.optional("max_output_tokens", positive).map(u64::from);
    if !["routes", "price", "max_output_tokens"]
        .iter()
        .any(|member| table.has(member))
    {
        table
            .place()
            .mistake("says nothing; known: routes, price, max_output_tokens");
    }
    Alias {
        routes: routes.unwrap_or_default().into_iter().flatten().collect(),
        price,
        max_output_tokens,
    }
}

/// USD per million tokens (`request`: per request). What is not named costs what `input` or
/// `output` costs.
fn price(table: &mut Table<'_>) -> Option<OperatorPrice> {
    let (input, output) = (
        table.required("input", money),
        table.required("output", money),
    );
    let [
        cached_input,
        cache_write,
        input_audio,
        output_audio,
        request,
    ] = [
        "cached_input",
        "cache_write",
        "input_audio",
        "output_audio",
        "request",
    ]
    .map(|member| table.optional(member, money));
    Some(OperatorPrice {
        input: input?,
        output: output?,
        cached_input,
        cache_write,
        input_audio,
        output_audio,
        request,
    })
}
