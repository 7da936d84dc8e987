//! Keys of `--by`, `--cull` and `--sort`.

use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kmemtrace::{Figure, GroupKey, SortKey};

/// Word of an option that takes a list of them.
pub(crate) trait Word: Clone + Send + Sync + FromStr<Err = String> + 'static {
    /// The word, with its other spellings and its meaning.
    fn possible(&self) -> PossibleValue;
}

impl Word for GroupKey {
    fn possible(&self) -> PossibleValue {
        PossibleValue::new(self.name()).help(self.entry().meaning)
    }
}

/// Keys of `--cull`, in the words and letters of page_owner_sort.
const CULL: [(GroupKey, &str, &str); 6] = [
    (GroupKey::Pid, "pid", "p"),
    (GroupKey::Tgid, "tgid", "tg"),
    (GroupKey::Comm, "name", "n"),
    (GroupKey::Stack, "stacktrace", "st"),
    (GroupKey::Allocator, "allocator", "ator"),
    (GroupKey::Released, "free", "f"),
];

/// Parser of keys of `--cull`.
pub(super) fn cull() -> impl TypedValueParser<Value = GroupKey> {
    let words = CULL.map(|(key, word, letter)| PossibleValue::new(word).alias(letter).help(key.entry().meaning));
    PossibleValuesParser::new(words).try_map(|given| {
        let found = CULL.into_iter().find(|(_, word, letter)| [*word, *letter].contains(&given.as_str()));
        found.map(|(key, ..)| key).ok_or("there is no such key")
    })
}

/// Key of `--sort`: greatest first, names smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SortBy {
    /// Key of the library.
    Key(SortKey),
    /// Time of the event.
    Time,
    /// Earliest time at which an owner before gave a page back.
    Freed {
        /// Latest first.
        is_descending: bool,
    },
}

impl SortBy {
    /// Sort keys that page_owner_sort has, too.
    pub(crate) fn of_page_owner() -> impl Iterator<Item = SortBy> {
        OF_PAGE_OWNER.into_iter().flatten().map(|(key, ..)| key)
    }

    /// A figure.
    pub(crate) const fn figure(figure: Figure) -> SortBy {
        SortBy::Key(SortKey::Figure(figure))
    }

    /// Key of the library; `None` for an order that rows of figures do not have.
    pub(crate) fn key(self) -> Option<SortKey> {
        match self {
            SortBy::Key(key) => Some(key),
            // The events stand at the time that is asked for.
            SortBy::Freed { is_descending } => Some(SortKey::Oldest { is_descending }),
            SortBy::Time => None,
        }
    }
}

/// Word and letter of page_owner_sort, smallest first, and greatest first.
macro_rules! both_ways {
    ($up:expr, $down:expr, $word:literal, $letter:literal) => {
        [
            ($up, $word, &[$letter, concat!("+", $letter), concat!("+", $word)] as &[&str]),
            ($down, concat!("-", $word), &[concat!("-", $letter)]),
        ]
    };
    ($key:ident, $word:literal, $letter:literal) => {
        both_ways!(
            SortBy::Key(SortKey::Key { key: GroupKey::$key, is_descending: false }),
            SortBy::Key(SortKey::Key { key: GroupKey::$key, is_descending: true }),
            $word,
            $letter
        )
    };
}

/// Orders of page_owner_sort: word and other spellings, by which direction. Help does not list them.
const OF_PAGE_OWNER: [[(SortBy, &str, &[&str]); 2]; 7] = [
    both_ways!(Pid, "pid", "p"),
    both_ways!(Tgid, "tgid", "tg"),
    both_ways!(Comm, "name", "n"),
    both_ways!(Stack, "stacktrace", "st"),
    both_ways!(Allocator, "allocator", "ator"),
    both_ways!(
        SortBy::Key(SortKey::Oldest { is_descending: false }),
        SortBy::Key(SortKey::Oldest { is_descending: true }),
        "alloc_ts",
        "at"
    ),
    both_ways!(SortBy::Freed { is_descending: false }, SortBy::Freed { is_descending: true }, "free_ts", "ft"),
];

/// Sort keys that are no figures of every row: key, word, other spellings, meaning.
const OTHERS: [(SortBy, &str, &[&str], &str); 5] = [
    (SortBy::Key(SortKey::Growth), "growth", &[], "Live bytes gained over the recording"),
    (SortBy::Key(SortKey::Static), "static", &[], "Bytes of functions and objects in the kernel's image"),
    (SortBy::Key(SortKey::Current), "current", &[], "Static and live bytes"),
    (SortBy::Time, "time", &[], "Time of the first allocation"),
    (SortBy::Key(SortKey::Site), "site", &["cache", "txt", "T"], "Name of the row: call-site, cache or group"),
];

/// All sort keys with their words.
fn sort_words() -> impl Iterator<Item = (SortBy, PossibleValue)> {
    let figures = Figure::ALL.into_iter().filter_map(|figure| {
        let (word, aliases) = figure.entry().sort.split_first()?;
        let meaning = figure.entry().meaning.trim_end_matches('.');
        Some((SortBy::figure(figure), PossibleValue::new(*word).aliases(aliases.iter().copied()).help(meaning)))
    });
    let others = OTHERS.into_iter().map(|(key, word, aliases, meaning)| {
        (key, PossibleValue::new(word).aliases(aliases.iter().copied()).help(meaning))
    });
    let of_page_owner = OF_PAGE_OWNER
        .into_iter()
        .flatten()
        .map(|(key, word, aliases)| (key, PossibleValue::new(word).aliases(aliases.iter().copied()).hide(true)));
    figures.chain(others).chain(of_page_owner)
}

impl Word for SortBy {
    fn possible(&self) -> PossibleValue {
        sort_words().find(|(key, _)| key == self).map(|(_, word)| word).unwrap_or_default()
    }
}

impl FromStr for SortBy {
    type Err = String;

    fn from_str(word: &str) -> Result<SortBy, String> {
        let found = sort_words().find(|(_, value)| value.matches(word, false));
        found.map(|(key, _)| key).ok_or_else(|| format!("{word}: no sort key"))
    }
}
