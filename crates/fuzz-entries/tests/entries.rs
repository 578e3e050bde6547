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
const CASES: u32 = 200;

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Reads the corpus of an entry, in the order of the files' names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let dir = fs::read_dir(fuzz_dir().join("corpus").join(name)).unwrap();
    let paths: BTreeSet<_> = dir.map(|file| file.unwrap().path()).collect();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// One change to a valid input.
#[derive(Debug, Clone)]
enum Damage {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Cut(Index),
    Repeat(Index, usize),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let place = |index: &Index| index.index(bytes.len() + 1);
        match self {
            Self::Set(at, byte) => {
                let at = place(at);
                bytes.splice(at..(at + 1).min(bytes.len()), [*byte]);
            }
            Self::Insert(at, more) => {
                let at = place(at);
                bytes.splice(at..at, more.iter().copied());
            }
            Self::Remove(at, length) => {
                let at = place(at);
                bytes.drain(at..(at + length).min(bytes.len()));
            }
            Self::Cut(at) => {
                let at = place(at);
                bytes.truncate(at);
            }
            Self::Repeat(at, length) => {
                let at = place(at);
                let again = bytes[at..(at + length).min(bytes.len())].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let telling = prop::sample::select(b"\0\t\n\r \"#&'*+,-./0129:;<=>?[]\\_{}\x7f\x80\xff".to_vec());
    prop_oneof![
        (any::<Index>(), prop_oneof![any::<u8>(), telling]).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (any::<Index>(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, more)| Damage::Insert(at, more)),
        (any::<Index>(), "[0-9]{1,25}").prop_map(|(at, more)| Damage::Insert(at, more.into_bytes())),
        (any::<Index>(), 1usize..40).prop_map(|(at, length)| Damage::Remove(at, length)),
        any::<Index>().prop_map(Damage::Cut),
        (any::<Index>(), 1usize..80).prop_map(|(at, length)| Damage::Repeat(at, length)),
    ]
}

/// Runs `check` with inputs of `strategy`; the panic of a failed assertion ends the test with the smallest such input.
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
fn every_entry_has_a_target_and_a_corpus() {
    let manifest = fs::read_to_string(fuzz_dir().join("Cargo.toml")).unwrap();
    let targets = fs::read_dir(fuzz_dir().join("fuzz_targets")).unwrap().count();
    assert_eq!(targets, ENTRIES.len());
    for (name, _) in ENTRIES {
        let target = fs::read_to_string(fuzz_dir().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(target.contains(&format!("longhaul_fuzz_entries::{name}(bytes)")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        assert!(!corpus(name).is_empty(), "{name}");
    }
}

#[test]
fn every_entry_holds_for_its_corpus() {
    for (name, entry) in ENTRIES {
        println!("{name}");
        corpus(name).iter().for_each(|bytes| entry(bytes));
    }
}

#[test]
fn every_entry_holds_for_random_bytes() {
    for (name, entry) in ENTRIES {
        for_all(name, &prop::collection::vec(any::<u8>(), 0..300), |bytes| entry(&bytes));
    }
}

#[test]
fn every_entry_holds_for_damaged_valid_bytes() {
    for (name, entry) in ENTRIES {
        let inputs = (prop::sample::select(corpus(name)), prop::collection::vec(damage(), 1..5));
        for_all(name, &inputs, |(mut bytes, changes)| {
            changes.iter().for_each(|change| change.apply(&mut bytes));
            entry(&bytes);
        });
    }
}
