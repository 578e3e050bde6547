//! Calls every entry with random bytes, and with files of the corpus as they are and damaged.

#![cfg(test)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use longhaul_fuzz_entries::ENTRIES;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

/// Cases an entry and kind of input: all of it takes a few seconds in a debug build.
const CASES: u32 = 256;

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Reads the corpus of an entry, in the order of the files' names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let dir = fs::read_dir(fuzz_dir().join("corpus").join(name)).unwrap();
    let paths: BTreeSet<_> = dir.map(|file| file.unwrap().path()).collect();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Returns the words of a corpus, and what is between them: the dictionary of its grammar.
fn words(corpus: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_word = |a: &u8, b: &u8| a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric();
    let words = corpus.iter().flat_map(|bytes| bytes.chunk_by(is_word));
    words.map(<[u8]>::to_vec).collect::<BTreeSet<_>>().into_iter().collect()
}

/// One change to a valid input, from a place on.
#[derive(Debug, Clone)]
enum Damage {
    /// Replaces a number of bytes by others.
    Replace(Index, usize, Vec<u8>),
    Repeat(Index, usize),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let (Self::Replace(at, length, _) | Self::Repeat(at, length)) = self;
        let at = at.index(bytes.len() + 1);
        let range = at..at.saturating_add(*length).min(bytes.len());
        let (range, more) = match self {
            Self::Replace(_, _, with) => (range, with.clone()),
            Self::Repeat(..) => (at..at, bytes[range].to_vec()),
        };
        bytes.splice(range, more);
    }
}

fn damage(words: Vec<Vec<u8>>) -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    let removed = prop_oneof![1usize..40, Just(usize::MAX)];
    let telling = prop::sample::select(b"\0\t\n\r \"#&'*+,-./0129:;<=>?[]\\_{}\x7f\x80\xff".to_vec());
    let inserted = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..9),
        "[0-9]{1,25}".prop_map(String::into_bytes),
        prop::sample::select(words),
    ];
    prop_oneof![
        1 => (at(), prop_oneof![any::<u8>(), telling]).prop_map(|(at, byte)| Damage::Replace(at, 1, vec![byte])),
        3 => (at(), inserted).prop_map(|(at, more)| Damage::Replace(at, 0, more)),
        2 => (at(), removed).prop_map(|(at, length)| Damage::Replace(at, length, vec![])),
        1 => (at(), 1usize..80).prop_map(|(at, length)| Damage::Repeat(at, length)),
    ]
}

/// Runs `check` with inputs of `strategy`; the panic of a failed assertion ends the test with the
/// smallest such input.
fn for_all<S: Strategy>(name: &str, strategy: &S, check: impl Fn(S::Value)) {
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let result = runner.run(strategy, |input| {
        check(input);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{name}: {error:.600}");
    }
}

#[test]
fn every_entry_has_a_target_and_holds_for_its_corpus() {
    let manifest = fs::read_to_string(fuzz_dir().join("Cargo.toml")).unwrap();
    let targets = fs::read_dir(fuzz_dir().join("fuzz_targets")).unwrap().count();
    assert_eq!(targets, ENTRIES.len());
    for (name, entry) in ENTRIES {
        println!("{name}");
        let target = fs::read_to_string(fuzz_dir().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(target.contains(&format!("longhaul_fuzz_entries::{name}(bytes)")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let corpus = corpus(name);
        assert!(!corpus.is_empty(), "{name}");
        corpus.iter().for_each(|bytes| entry(bytes));
    }
}

#[test]
fn every_entry_holds_for_random_bytes() {
    for (name, entry) in ENTRIES {
        for_all(name, &prop::collection::vec(any::<u8>(), 0..300), |bytes| entry(&bytes));
    }
}

#[test]
fn every_entry_holds_for_damaged_valid_bytes_and_valid_words_in_any_order() {
    for (name, entry) in ENTRIES {
        let corpus = corpus(name);
        let words = words(&corpus);
        let text = prop::collection::vec(prop::sample::select(words.clone()), 0..60);
        for_all(name, &text, |words| entry(&words.concat()));
        let changes = prop::collection::vec(damage(words), 1..5);
        for_all(name, &(prop::sample::select(corpus), changes), |(mut bytes, changes)| {
            changes.iter().for_each(|change| change.apply(&mut bytes));
            entry(&bytes);
        });
    }
}
