//! Signatures of what is sent, and links that decide about one call until it expires.

use ring::hmac::{HMAC_SHA256, Key, sign, verify};

use crate::config::Secret;

/// `v1=` and the HMAC-SHA256 of `v1:TIMESTAMP:BODY` in hexadecimal.
pub fn signature(secret: &Secret, timestamp: i64, body: &[u8]) -> String {
    let signed = [format!("v1:{timestamp}:").as_bytes(), body].concat();
    format!("v1={}", hex::encode(sign(&key(secret), &signed)))
}

/// The last step of a link's path: until when, and the proof that we made it.
pub fn link_token(secret: &Secret, approval: &str, expires_at_ms: i64) -> String {
    let proof = sign(&key(secret), &link(approval, expires_at_ms));
    format!("{expires_at_ms}-{}", hex::encode(proof))
}

/// Until when a link holds; `None`: it was not made by us for this approval.
pub fn link_expiry(secret: &Secret, approval: &str, token: &str) -> Option<i64> {
    let (expires, proof) = token.split_once('-')?;
    let expires_at_ms = expires.parse().ok()?;
    let proof = hex::decode(proof).ok()?;
    verify(&key(secret), &link(approval, expires_at_ms), &proof).ok()?;
    Some(expires_at_ms)
}

fn key(secret: &Secret) -> Key {
    Key::new(HMAC_SHA256, secret.reveal().as_bytes())
}

/// Begins unlike what `signature` signs: neither can stand for the other.
fn link(approval: &str, expires_at_ms: i64) -> Vec<u8> {
    format!("link:{expires_at_ms}:{approval}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.to_owned())
    }

    #[test]
    fn a_link_holds_for_its_approval_its_time_and_its_secret_alone() {
        let ours = secret("0123456789abcdef");
        let token = link_token(&ours, "apr_1", 1000);
        assert_eq!(link_expiry(&ours, "apr_1", &token), Some(1000));
        assert_eq!(link_expiry(&ours, "apr_2", &token), None);
        assert_eq!(
            link_expiry(&secret("another-secret-x"), "apr_1", &token),
            None
        );
        let later = token.replacen("1000", "2000", 1);
        for tampered in [&later, "", "1000-", "1000-00", "-"] {
            assert_eq!(link_expiry(&ours, "apr_1", tampered), None, "{tampered}");
        }
    }

    /// As `openssl dgst -sha256 -hmac` and the example of the README make it.
    #[test]
    fn the_signature_is_the_documented_one() {
        let made = signature(&secret("0123456789abcdef"), 1_796_040_000, b"{}");
        assert_eq!(made, KNOWN);
    }

    const KNOWN: &str = "v1=c7bacbfcb7c23267022baa940c3d474bf339e686deb255a32f4214c0a163e034";
}
