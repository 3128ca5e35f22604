//! Finds credentials where the file points to; they never stand in the file itself.

use std::{fs, path::Path};

use super::{
    ApiKey, Secret,
    loading::cannot_read,
    reader::{Place, Table, Value},
    values::text,
};

/// A provider's key.
pub(super) fn api_key(owner: &mut Table<'_>) -> ApiKey {
    let place = owner.place_of("api_key");
    match owner.member("api_key") {
        None => ApiKey::None,
        Some(value) => credential(&place, value, "requests for it are answered 503"),
    }
}

/// `{ env = "NAME" }` or `{ file = "PATH" }`. One that is not there is a warning, no mistake;
/// `until_then` says what that means.
pub(super) fn credential(place: &Place<'_>, value: Value<'_>, until_then: &str) -> ApiKey {
    found(place, value, &Form::Token(until_then))
}

/// The same for the whole value of a header, such as `Bearer …`.
pub(super) fn header_value(place: &Place<'_>, value: Value<'_>, until_then: &str) -> ApiKey {
    found(place, value, &Form::Header(until_then))
}

/// What a secret has to look like, and what holds while it is not there.
enum Form<'t> {
    Token(&'t str),
    Header(&'t str),
}

impl Form<'_> {
    fn until_then(&self) -> &str {
        match self {
            Self::Token(until_then) | Self::Header(until_then) => until_then,
        }
    }

    fn allows(&self, byte: u8) -> bool {
        byte.is_ascii_graphic() || (byte == b' ' && matches!(self, Self::Header(_)))
    }
}

fn found(place: &Place<'_>, value: Value<'_>, form: &Form<'_>) -> ApiKey {
    let found = value.table(REFERENCES_ONLY, |table| {
        let env = table.member("env").map(|value| value.read(text));
        let file = table.member("file").map(|value| value.read(text));
        match (env, file) {
            (Some(name), None) => from_environment(place, name?, form),
            (None, Some(path)) => Some(from_file(place, path?, form)),
            _ => {
                table.place().mistake(REFERENCES_ONLY);
                None
            }
        }
    });
    found.flatten().unwrap_or(ApiKey::None)
}

fn from_environment(place: &Place<'_>, name: &str, form: &Form<'_>) -> Option<ApiKey> {
    // Capitals only: a key pasted here by mistake has small letters, and must not be repeated.
    let fine = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if name.is_empty() || !name.bytes().all(fine) {
        place.mistake("env must name an environment variable in capitals, such as OPENAI_API_KEY");
        return None;
    }
    let looked_for = format!("env {name}");
    let environment = place.document().loading.environment;
    Some(match environment(name) {
        None => missing(place, looked_for, "is not set", form),
        Some(text) => usable(place, looked_for, &text, form),
    })
}

fn from_file(place: &Place<'_>, written: &str, form: &Form<'_>) -> ApiKey {
    let path = place.document().beside(Path::new(written));
    let looked_for = format!("file {}", path.display());
    place.document().loading.source(&path);
    match fs::read_to_string(&path) {
        Ok(text) => usable(place, looked_for, &text, form),
        Err(error) => missing(place, looked_for, &cannot_read(&error), form),
    }
}

fn usable(place: &Place<'_>, looked_for: String, text: &str, form: &Form<'_>) -> ApiKey {
    let text = text.trim();
    if text.is_empty() {
        return missing(place, looked_for, "is empty", form);
    }
    // It goes into a header.
    if !text.bytes().all(|byte| form.allows(byte)) {
        return missing(
            place,
            looked_for,
            "holds characters that no key has, such as a line end",
            form,
        );
    }
    ApiKey::Found(Secret::new(text.to_owned()))
}

fn missing(place: &Place<'_>, looked_for: String, why: &str, form: &Form<'_>) -> ApiKey {
    let until_then = form.until_then();
    place.warning(format!("{looked_for} {why}; until then {until_then}"));
    ApiKey::Missing(looked_for)
}

const REFERENCES_ONLY: &str = "must be { env = \"NAME\" } or { file = \"PATH\" }; \
                               a secret never stands in this file";
