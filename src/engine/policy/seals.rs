//! A published version never changes: what it said when it was published is remembered, and
//! another content under the same version is refused.

use std::collections::BTreeMap;

use super::Status;

/// One version as it stands in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edition {
    pub id: String,
    pub version: u32,
    pub status: Status,
    /// What it says, as SHA-256 in hexadecimal.
    pub sha256: String,
}

impl Edition {
    pub fn label(&self) -> String {
        format!("{}@{}", self.id, self.version)
    }
}

/// The versions that were ever published.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seals(BTreeMap<(String, u32), (String, Status)>);

/// A published version that says something else now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub id: String,
    pub version: u32,
    /// The first version that is free.
    pub free: u32,
}

impl Seals {
    pub fn new(editions: impl IntoIterator<Item = Edition>) -> Self {
        let sealed = |edition: Edition| {
            let key = (edition.id, edition.version);
            (key, (edition.sha256, edition.status))
        };
        Self(editions.into_iter().map(sealed).collect())
    }

    /// Editions that are new here or have another status: published or archived since. Drafts
    /// are nobody's business before they are published.
    ///
    /// # Errors
    /// Every version whose content is not what was published.
    pub fn check(&self, editions: &[Edition]) -> Result<Vec<Edition>, Vec<Broken>> {
        let (mut fresh, mut broken) = (Vec::new(), Vec::new());
        for edition in editions {
            match self.0.get(&(edition.id.clone(), edition.version)) {
                Some((sha256, _)) if *sha256 != edition.sha256 => broken.push(Broken {
                    id: edition.id.clone(),
                    version: edition.version,
                    free: self.free(&edition.id, editions),
                }),
                Some((_, status)) if *status == edition.status => {}
                None if edition.status == Status::Draft => {}
                _ => fresh.push(edition.clone()),
            }
        }
        if broken.is_empty() {
            Ok(fresh)
        } else {
            Err(broken)
        }
    }

    pub fn add(&mut self, editions: Vec<Edition>) {
        for edition in editions {
            let key = (edition.id, edition.version);
            self.0.insert(key, (edition.sha256, edition.status));
        }
    }

    fn free(&self, id: &str, editions: &[Edition]) -> u32 {
        let sealed = self.0.keys().filter(|(known, _)| known == id);
        let written = editions.iter().filter(|edition| edition.id == id);
        let versions = sealed.map(|(_, version)| *version);
        let versions = versions.chain(written.map(|edition| edition.version));
        versions.max().map_or(1, |newest| newest.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edition(version: u32, status: Status, sha256: &str) -> Edition {
        Edition {
            id: "p".to_owned(),
            version,
            status,
            sha256: sha256.to_owned(),
        }
    }

    #[test]
    fn a_published_version_may_be_archived_and_never_changed() {
        let mut seals = Seals::default();
        let published = edition(1, Status::Published, "a");
        let fresh = seals.check(std::slice::from_ref(&published)).unwrap();
        assert_eq!(fresh, std::slice::from_ref(&published));
        seals.add(fresh);
        assert_eq!(seals.check(&[published]), Ok(Vec::new()));
        let archived = edition(1, Status::Archived, "a");
        assert_eq!(
            seals.check(std::slice::from_ref(&archived)),
            Ok(vec![archived])
        );
        for status in [Status::Published, Status::Archived, Status::Draft] {
            let changed = [edition(1, status, "b"), edition(4, Status::Draft, "c")];
            let broken = seals.check(&changed).unwrap_err();
            assert_eq!((broken[0].version, broken[0].free), (1, 5));
        }
    }

    #[test]
    fn drafts_change_freely() {
        let seals = Seals::default();
        assert_eq!(
            seals.check(&[edition(1, Status::Draft, "a")]),
            Ok(Vec::new())
        );
        assert_eq!(
            seals.check(&[edition(1, Status::Draft, "b")]),
            Ok(Vec::new())
        );
    }
}
