//! The description of `/admin/v1` in OpenAPI 3.1: made of the route table, so that neither can
//! know what the other does not. The shapes of bodies stand in `schemas.json`.

use std::sync::OnceLock;

use axum::Json;
use serde_json::{Map, Value, json};

use super::{
    auth::CONSOLE,
    query::{Kind, Parameter},
    routes::{Access, Answer, Route},
    table::table,
};

const SCHEMAS: &str = include_str!("schemas.json");

pub(super) async fn description() -> Json<&'static Value> {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    Json(DOCUMENT.get_or_init(document))
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in table() {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(methods) = methods.as_object_mut() {
            let method = route.method.as_str().to_lowercase();
            methods.insert(method, operation(&route));
        }
    }
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tallygate, control plane",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "For operators. Times are milliseconds since 1970 or RFC 3339, money is USD as exact decimal text.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "session": { "type": "apiKey", "in": "cookie", "name": "tallygate_session" },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut parameters: Vec<Value> = path_names(route.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }))
        .collect();
    parameters.extend(route.query.iter().map(query_parameter));
    let mut operation = json!({
        "summary": route.about,
        "operationId": operation_id(route),
        "parameters": parameters,
        "responses": responses(route),
    });
    let Some(members) = operation.as_object_mut() else {
        return operation;
    };
    if let Access::To(role) = route.access {
        let security = json!([{ "token": [] }, { "session": [] }]);
        members.insert("security".into(), security);
        members.insert("x-role".into(), role.name().into());
    }
    if let Some(schema) = route.body {
        let body = json!({ "required": true, "content": { "application/json": { "schema": reference(schema) } } });
        members.insert("requestBody".into(), body);
    }
    // With a token nothing of the kind is asked for.
    if route.access == Access::Open && route.body.is_some() {
        parameters.push(json!({ "name": CONSOLE, "in": "header", "required": true, "schema": { "const": "1" } }));
        members.insert("parameters".into(), parameters.into());
    }
    operation
}

fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|step| step.strip_prefix('{')?.strip_suffix('}'))
}

fn operation_id(route: &Route) -> String {
    let path = route.path.trim_start_matches("/admin/v1/");
    let name: String = path
        .chars()
        .map(|char| {
            if char.is_ascii_alphanumeric() {
                char
            } else {
                '_'
            }
        })
        .collect();
    format!("{}_{name}", route.method.as_str().to_lowercase())
}

fn query_parameter(parameter: &Parameter) -> Value {
    let mut told = json!({
        "name": parameter.name,
        "in": "query",
        "required": false,
        "description": parameter.about,
        "schema": parameter.kind.schema(),
    });
    if let (Kind::SomeOf(_), Some(members)) = (parameter.kind, told.as_object_mut()) {
        members.insert("style".into(), "form".into());
        members.insert("explode".into(), false.into());
    }
    told
}

fn responses(route: &Route) -> Value {
    let mut responses = Map::new();
    let (status, good) = match route.answer {
        Answer::Json(schema) => ("200", content("application/json", reference(schema))),
        Answer::Lines(schema) => ("200", lines(schema)),
        Answer::LinesOrCsv(schema) => {
            let mut lines = lines(schema);
            if let Some(content) = lines.get_mut("content").and_then(Value::as_object_mut) {
                content.insert("text/csv".into(), json!({ "schema": { "type": "string" } }));
            }
            ("200", lines)
        }
        Answer::Events => (
            "200",
            content("text/event-stream", json!({ "type": "string" })),
        ),
        Answer::Text => ("200", content("text/plain", json!({ "type": "string" }))),
        Answer::Nothing => ("204", json!({ "description": "Done" })),
    };
    responses.insert(status.into(), good);
    let mut fault = |status: &str, about: &str| {
        let mut told = content("application/json", reference("Error"));
        if let Some(members) = told.as_object_mut() {
            members.insert("description".into(), about.into());
        }
        responses.insert(status.into(), told);
    };
    if route.path == "/readyz" {
        let mut unready = content("application/json", reference("Ready"));
        unready
            .as_object_mut()
            .map(|told| told.insert("description".into(), "Not ready".into()));
        responses.insert("503".into(), unready);
        return responses.into();
    }
    if route.access == Access::Open && route.body.is_none() {
        return responses.into();
    }
    fault("400", "A parameter or the body is not as described");
    fault("401", "No operator's token");
    fault(
        "403",
        "The role does not suffice, or a change came from another site",
    );
    fault("404", "There is no such thing");
    fault("405", "The path does not answer to this method");
    if route.path.contains("/approvals/") && route.body.is_some() {
        fault(
            "409",
            "Somebody was first, it has expired, or the rules have changed",
        );
    }
    fault("429", "Too many wrong tokens");
    fault("503", "The store does not answer, or enough of these run");
    responses.into()
}

fn content(kind: &str, schema: Value) -> Value {
    json!({ "description": "As asked", "content": { kind: { "schema": schema } } })
}

/// A schema tells of JSON Lines what each line is; the whole is text.
fn lines(schema: &str) -> Value {
    json!({
        "description": format!("Lines, each one {schema}"),
        "content": { "application/jsonl": { "schema": { "type": "string" }, "x-line": reference(schema) } },
    })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_described_is_what_there_is() {
        let document = document();
        let described: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().unwrap().keys();
                methods.map(|method| (path.clone(), method.to_uppercase()))
            })
            .collect();
        let table = table();
        let served: BTreeSet<(String, String)> = table
            .iter()
            .map(|route| (route.path.to_owned(), route.method.to_string()))
            .collect();
        assert_eq!(described, served);
        assert_eq!(
            served.len(),
            table.len(),
            "a route stands twice in the table"
        );
    }

    #[test]
    fn every_schema_that_is_named_is_there_and_every_one_is_named() {
        let document = document();
        let text = document.to_string();
        let named = regex::Regex::new(r"#/components/schemas/(\w+)").unwrap();
        let named: BTreeSet<&str> = named
            .captures_iter(&text)
            .map(|found| found.get(1).unwrap().as_str())
            .collect();
        let known = document["components"]["schemas"].as_object().unwrap();
        let known: BTreeSet<&str> = known.keys().map(String::as_str).collect();
        assert_eq!(named, known);
    }

    #[test]
    fn only_what_needs_no_token_is_open() {
        let open: Vec<&str> = table()
            .iter()
            .filter(|route| route.access == Access::Open)
            .map(|route| route.path)
            .collect();
        assert_eq!(open, ["/healthz", "/readyz", "/admin/v1/session"]);
    }
}
