//! Who has signed in with a browser. In memory: a restart signs everybody out.
//!
//! A session holds the digest of the token it was opened with, no rights: what its operator may
//! do is looked up anew for each request, so that a reload takes effect at once.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use sha2::{Digest as _, Sha256};

/// A working day; after that the token is asked for again.
pub(super) const LONGEST_MS: i64 = 12 * 60 * 60 * 1000;
/// Nobody has touched it for so long.
const LONGEST_IDLE_MS: i64 = 60 * 60 * 1000;
/// With more, the one that has been idle longest ends.
const MOST: usize = 1000;

type Digest = [u8; 32];

#[derive(Default)]
pub(super) struct Sessions {
    /// By the digest of the id: who could read our memory could still not take a session over.
    open: Mutex<HashMap<Digest, Session>>,
}

struct Session {
    token: Digest,
    opened_ms: i64,
    seen_ms: i64,
}

impl Session {
    fn is_over(&self, now_ms: i64) -> bool {
        now_ms - self.opened_ms >= LONGEST_MS || now_ms - self.seen_ms >= LONGEST_IDLE_MS
    }
}

impl Sessions {
    /// `id` is a fresh secret, which the browser keeps.
    pub fn open(&self, id: &str, token: Digest, now_ms: i64) {
        let mut open = self.lock();
        open.retain(|_, session| !session.is_over(now_ms));
        if open.len() >= MOST
            && let Some(oldest) = open.iter().min_by_key(|(_, session)| session.seen_ms)
        {
            let oldest = *oldest.0;
            open.remove(&oldest);
        }
        let session = Session {
            token,
            opened_ms: now_ms,
            seen_ms: now_ms,
        };
        open.insert(digest(id), session);
    }

    /// The digest of the token that the session was opened with.
    pub fn token_of(&self, id: &str, now_ms: i64) -> Option<Digest> {
        let mut open = self.lock();
        let session = open.get_mut(&digest(id))?;
        if session.is_over(now_ms) {
            return None;
        }
        session.seen_ms = now_ms;
        Some(session.token)
    }

    /// The same without taking it for a sign of life.
    pub fn peek(&self, id: &str, now_ms: i64) -> Option<Digest> {
        let open = self.lock();
        let session = open.get(&digest(id))?;
        (!session.is_over(now_ms)).then_some(session.token)
    }

    pub fn close(&self, id: &str) {
        self.lock().remove(&digest(id));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(id: &str) -> Digest {
    Sha256::digest(id.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Digest = [7; 32];

    #[test]
    fn a_session_ends_by_idleness_by_age_and_when_it_is_closed() {
        let sessions = Sessions::default();
        sessions.open("a", TOKEN, 0);
        assert_eq!(sessions.token_of("a", 1), Some(TOKEN));
        assert_eq!(sessions.token_of("b", 1), None);
        assert_eq!(sessions.token_of("a", 1 + LONGEST_IDLE_MS), None);

        sessions.open("c", TOKEN, 0);
        let mut now_ms = 0;
        while now_ms + LONGEST_IDLE_MS / 2 < LONGEST_MS {
            now_ms += LONGEST_IDLE_MS / 2;
            assert_eq!(sessions.token_of("c", now_ms), Some(TOKEN));
        }
        assert_eq!(sessions.token_of("c", LONGEST_MS), None);

        sessions.open("d", TOKEN, 0);
        sessions.close("d");
        assert_eq!(sessions.token_of("d", 1), None);
    }

    #[test]
    fn there_are_never_more_than_so_many_and_the_idlest_goes_first() {
        let sessions = Sessions::default();
        for number in 0..MOST {
            sessions.open(&number.to_string(), TOKEN, 0);
        }
        assert_eq!(sessions.token_of("0", 5), Some(TOKEN));
        for number in 0..MOST - 1 {
            sessions.open(&format!("more {number}"), TOKEN, 10);
        }
        assert_eq!(sessions.lock().len(), MOST);
        assert_eq!(sessions.token_of("0", 11), Some(TOKEN));
        assert_eq!(sessions.token_of("1", 11), None);
    }
}
