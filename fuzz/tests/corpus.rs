//! The fuzzed functions on stable: over the committed corpus, over damaged forms of it, and over
//! random bytes.

use std::{fs, path::Path};

use proptest::prelude::*;
use tallygate_fuzz::{body, calls, relay, sse};

const TARGETS: [(&str, fn(&[u8])); 4] =
    [("sse", sse), ("calls", calls), ("relay", relay), ("body", body)];

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let files = fs::read_dir(folder).unwrap();
    files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn the_corpus_holds() {
    for (name, target) in TARGETS {
        let seeds = corpus(name);
        assert!(!seeds.is_empty(), "{name}");
        seeds.iter().for_each(|seed| target(seed));
    }
}

proptest! {
    #[test]
    fn random_bytes_hold(data in prop::collection::vec(any::<u8>(), 0..200)) {
        TARGETS.iter().for_each(|(_, target)| target(&data));
    }

    #[test]
    fn damaged_seeds_hold(
        target in 0_usize..4,
        seed in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 0..6),
    ) {
        let (name, target) = TARGETS[target];
        let seeds = corpus(name);
        let mut data = seeds[seed.index(seeds.len())].clone();
        for (place, byte, how) in damage {
            let at = place.index(data.len() + 1);
            match how {
                0 => data.insert(at, byte),
                1 if at < data.len() => data[at] = byte,
                _ => data.truncate(data.len().saturating_sub(usize::from(byte % 4))),
            }
        }
        target(&data);
    }
}
