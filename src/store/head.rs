//! Heads: how far the ledger went at a moment, to be kept elsewhere. Who holds one sees when
//! records were cut off or written anew. Signed with Ed25519, so that it may lie anywhere.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use super::{Chain, LedgerLine};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The number of the record.
    pub seq: i64,
    /// Its digest, SHA-256 in hex.
    pub digest: String,
    /// When it was taken, milliseconds since 1970.
    pub at: i64,
    /// Base64, over what `signed_text` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    #[error("line {0} is no head as `tallygate ledger head` writes it")]
    Unreadable(usize),
    #[error("there is no head in it")]
    Empty,
    #[error("this is no Ed25519 key in PEM as `tallygate ledger keygen` writes it")]
    Key,
    #[error("the head of record {0} is not signed")]
    Unsigned(i64),
    #[error("the signature of the head of record {0} is not by this key")]
    Forged(i64),
    #[error(
        "the ledger ends at record {ends_at}, and a head knows {head}: {} records were cut off",
        head - ends_at
    )]
    Cut { ends_at: i64, head: i64 },
    #[error(
        "record {0} is not the one that the head names: it, or one before it, was written anew"
    )]
    Rewritten(i64),
}

impl Head {
    pub fn of(chain: &Chain, at: i64) -> Self {
        Self {
            seq: chain.seq,
            digest: hex::encode(chain.digest),
            at,
            signature: None,
        }
    }

    /// What is signed, for other programs: `tallygate ledger head`, the number, the digest and
    /// the time, each with a line end.
    fn signed_text(&self) -> String {
        let Self {
            seq, digest, at, ..
        } = self;
        format!("tallygate ledger head\n{seq}\n{digest}\n{at}\n")
    }

    pub fn sign(&mut self, key: &SigningKey) {
        let signature = key.0.sign(self.signed_text().as_bytes());
        self.signature = Some(BASE64_STANDARD.encode(signature));
    }

    /// # Errors
    /// It is not signed by the owner of `key`.
    pub fn check_signature(&self, key: &PublicKey) -> Result<(), HeadFault> {
        let signature = self.signature.as_ref();
        let signature = signature.ok_or(HeadFault::Unsigned(self.seq))?;
        let bytes = BASE64_STANDARD.decode(signature).unwrap_or_default();
        UnparsedPublicKey::new(&ED25519, &key.0)
            .verify(self.signed_text().as_bytes(), &bytes)
            .map_err(|_| HeadFault::Forged(self.seq))
    }
}

/// Heads that a ledger is held against while it is read, by their numbers.
#[derive(Debug, Default)]
pub struct Heads(Vec<Head>);

impl Heads {
    /// A file with a head on each line.
    ///
    /// # Errors
    /// It holds something else, or nothing.
    pub fn read(text: &str) -> Result<Self, HeadFault> {
        let lines = (1..).zip(text.lines());
        let filled = lines.filter(|(_, line)| !line.trim().is_empty());
        let mut heads = filled
            .map(|(number, line)| {
                serde_json::from_str(line).map_err(|_| HeadFault::Unreadable(number))
            })
            .collect::<Result<Vec<Head>, _>>()?;
        if heads.is_empty() {
            return Err(HeadFault::Empty);
        }
        heads.sort_by_key(|head| std::cmp::Reverse(head.seq));
        Ok(Self(heads))
    }

    /// # Errors
    /// One of them is not signed by the owner of `key`.
    pub fn check_signatures(&self, key: &PublicKey) -> Result<(), HeadFault> {
        self.0.iter().try_for_each(|head| head.check_signature(key))
    }

    /// The next line of the ledger.
    ///
    /// # Errors
    /// A head names another record in its place.
    pub fn pass(&mut self, line: &LedgerLine) -> Result<(), HeadFault> {
        while let Some(head) = self.0.pop_if(|head| head.seq <= line.seq) {
            let same = head.seq < 1 || head.digest == hex::encode(line.digest);
            if !same {
                return Err(HeadFault::Rewritten(head.seq));
            }
        }
        Ok(())
    }

    /// The ledger ended here.
    ///
    /// # Errors
    /// A head knows records after it.
    pub fn end(&self, ends_at: i64) -> Result<(), HeadFault> {
        match self.0.first() {
            Some(head) if head.seq > ends_at => Err(HeadFault::Cut {
                ends_at,
                head: head.seq,
            }),
            _ => Ok(()),
        }
    }
}

/// What stands before the 32 bytes of a key in PKCS #8 and in SPKI (RFC 8410), so that other
/// programs read our files.
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
const SPKI: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// # Errors
    /// The text is no such key.
    pub fn from_pem(text: &str) -> Result<Self, HeadFault> {
        let seed = unwrap_pem(text, "PRIVATE KEY", &PKCS8)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed);
        pair.map(Self).map_err(|_| HeadFault::Key)
    }

    /// The file of a key whose secret is `seed`.
    pub fn pem(seed: &[u8; 32]) -> String {
        wrap_pem("PRIVATE KEY", &PKCS8, seed)
    }

    /// The file of its public half.
    pub fn public_pem(&self) -> String {
        wrap_pem("PUBLIC KEY", &SPKI, self.0.public_key().as_ref())
    }
}

pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// # Errors
    /// The text is no such key.
    pub fn from_pem(text: &str) -> Result<Self, HeadFault> {
        unwrap_pem(text, "PUBLIC KEY", &SPKI).map(Self)
    }
}

fn wrap_pem(label: &str, prefix: &[u8], key: &[u8]) -> String {
    let base64 = BASE64_STANDARD.encode([prefix, key].concat());
    format!("-----BEGIN {label}-----\n{base64}\n-----END {label}-----\n")
}

fn unwrap_pem(text: &str, label: &str, prefix: &[u8]) -> Result<Vec<u8>, HeadFault> {
    let inner = text
        .trim()
        .strip_prefix(&format!("-----BEGIN {label}-----"))
        .and_then(|rest| rest.strip_suffix(&format!("-----END {label}-----")))
        .ok_or(HeadFault::Key)?;
    let base64: String = inner.split_whitespace().collect();
    let bytes = BASE64_STANDARD.decode(base64).map_err(|_| HeadFault::Key)?;
    let key = bytes.strip_prefix(prefix).filter(|key| key.len() == 32);
    key.map(<[u8]>::to_vec).ok_or(HeadFault::Key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8410, section 10.3: a private key and its public half.
    const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

    #[test]
    fn keys_are_those_of_other_programs() {
        let key = SigningKey::from_pem(PRIVATE).ok().unwrap();
        assert_eq!(key.public_pem(), PUBLIC);
        assert_eq!(SigningKey::from_pem(PUBLIC).err(), Some(HeadFault::Key));
        assert_eq!(PublicKey::from_pem(PRIVATE).err(), Some(HeadFault::Key));
    }

    #[test]
    fn a_signature_covers_all_that_a_head_says() {
        let key = SigningKey::from_pem(PRIVATE).ok().unwrap();
        let public = PublicKey::from_pem(PUBLIC).ok().unwrap();
        let mut head = Head::of(&Chain::default(), 7);
        assert_eq!(head.check_signature(&public), Err(HeadFault::Unsigned(0)));
        head.sign(&key);
        assert_eq!(head.check_signature(&public), Ok(()));
        let changes: [fn(&mut Head); 3] = [
            |head| head.seq = 1,
            |head| head.at = 8,
            |head| head.digest.replace_range(..1, "1"),
        ];
        for change in changes {
            let mut forged = head.clone();
            change(&mut forged);
            let seq = forged.seq;
            assert_eq!(forged.check_signature(&public), Err(HeadFault::Forged(seq)));
        }
    }

    #[test]
    fn a_file_of_heads_holds_heads() {
        let line = serde_json::to_string(&Head::of(&Chain::default(), 7)).unwrap();
        assert!(Heads::read(&format!("{line}\n\n{line}\n")).is_ok());
        assert_eq!(Heads::read("\n").err(), Some(HeadFault::Empty));
        let broken = Heads::read(&format!("{line}\nx"));
        assert_eq!(broken.err(), Some(HeadFault::Unreadable(2)));
    }
}
