//! Finds credentials where the file points to; they never stand in the file itself.

use std::{fs, path::Path};

use super::{
    ApiKey, Secret,
    loading::cannot_read,
    reader::{Place, Table},
    values::text,
};

/// `{ env = "NAME" }` or `{ file = "PATH" }`. One that is not there is a warning, no mistake.
pub(super) fn api_key(owner: &mut Table<'_>) -> ApiKey {
    let place = owner.place_of("api_key");
    let Some(value) = owner.member("api_key") else {
        return ApiKey::None;
    };
    let found = value.table(REFERENCES_ONLY, |table| {
        let env = table.member("env").map(|value| value.read(text));
        let file = table.member("file").map(|value| value.read(text));
        match (env, file) {
            (Some(name), None) => from_environment(&place, name?),
            (None, Some(path)) => Some(from_file(&place, path?)),
            _ => {
                table.place().mistake(REFERENCES_ONLY);
                None
            }
        }
    });
    found.flatten().unwrap_or(ApiKey::None)
}

fn from_environment(place: &Place<'_>, name: &str) -> Option<ApiKey> {
    // Capitals only: a key pasted here by mistake has small letters, and must not be repeated.
    let fine = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if name.is_empty() || !name.bytes().all(fine) {
        place.mistake("env must name an environment variable in capitals, such as OPENAI_API_KEY");
        return None;
    }
    let looked_for = format!("env {name}");
    let environment = place.document().loading.environment;
    Some(match environment(name) {
        None => missing(place, looked_for, "is not set"),
        Some(text) => usable(place, looked_for, &text),
    })
}

fn from_file(place: &Place<'_>, written: &str) -> ApiKey {
    let path = place.document().beside(Path::new(written));
    let looked_for = format!("file {}", path.display());
    place.document().loading.source(&path);
    match fs::read_to_string(&path) {
        Ok(text) => usable(place, looked_for, &text),
        Err(error) => missing(place, looked_for, &cannot_read(&error)),
    }
}

fn usable(place: &Place<'_>, looked_for: String, text: &str) -> ApiKey {
    let text = text.trim();
    if text.is_empty() {
        return missing(place, looked_for, "is empty");
    }
    // It goes into a header.
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return missing(
            place,
            looked_for,
            "holds characters that no key has, such as a line end",
        );
    }
    ApiKey::Found(Secret::new(text.to_owned()))
}

fn missing(place: &Place<'_>, looked_for: String, why: &str) -> ApiKey {
    place.warning(format!(
        "{looked_for} {why}; until then requests for it are answered 503"
    ));
    ApiKey::Missing(looked_for)
}

const REFERENCES_ONLY: &str = "must be { env = \"NAME\" } or { file = \"PATH\" }; \
                               a secret never stands in this file";
