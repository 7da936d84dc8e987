//! Keys of `--by`, `--cull` and `--sort`.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kmemtrace::{GroupKey, SortKey};

/// Word of an option that takes a list of them.
pub(crate) trait Word: Clone + Send + Sync + Sized + 'static {
    /// The word, with its other spellings and its meaning.
    fn possible(&self) -> PossibleValue;

    /// The value that a word stands for.
    fn of_word(word: &str) -> Result<Self, String>;
}

impl Word for GroupKey {
    fn possible(&self) -> PossibleValue {
        PossibleValue::new(self.name()).help(self.entry().meaning)
    }

    fn of_word(word: &str) -> Result<GroupKey, String> {
        word.parse().map_err(|_| "there is no such key".to_owned())
    }
}

/// Parser of keys of `--by`.
pub(super) fn by() -> impl TypedValueParser<Value = GroupKey> {
    PossibleValuesParser::new(GroupKey::ALL.map(|key| key.possible())).try_map(|word| word.parse::<GroupKey>())
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

/// Sort keys, greatest first (names: smallest first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    /// Bytes lost to internal fragmentation, over all allocations
    Wasted,
    /// Bytes lost to internal fragmentation by objects live at the end
    #[value(name = "live_wasted", alias = "waste")]
    LiveWasted,
    /// Bytes live at the end
    #[value(alias = "current_dynamic")]
    Live,
    /// Greatest number of live bytes
    Peak,
    /// Allocated bytes, over all allocations
    #[value(aliases = ["allocated", "total_dynamic"])]
    Total,
    /// Requested bytes, over all allocations
    Requested,
    /// Number of allocations
    #[value(alias = "alloc_count")]
    Allocs,
    /// Number of observed frees
    #[value(alias = "free_count")]
    Frees,
    /// Number of frees on another CPU than the allocation's
    Cross,
    /// Live bytes gained over the recording
    Growth,
    /// Bytes of functions and objects in the kernel's image
    Static,
    /// Static and live bytes
    Current,
    /// Time of the first allocation
    Time,
    /// Name of the row: call-site, cache or group
    #[value(aliases = ["cache", "txt", "T"])]
    Site,
    /// With --cull: thread id, smallest first
    #[value(aliases = ["p", "+p", "+pid"], hide = true)]
    Pid,
    /// Thread id, greatest first
    #[value(name = "-pid", alias = "-p", hide = true)]
    PidDown,
    /// With --cull: thread group, smallest first
    #[value(aliases = ["tg", "+tg", "+tgid"], hide = true)]
    Tgid,
    /// Thread group, greatest first
    #[value(name = "-tgid", alias = "-tg", hide = true)]
    TgidDown,
    /// With --cull: command of the thread
    #[value(aliases = ["n", "+n", "+name"], hide = true)]
    Name,
    /// Command of the thread, last one first
    #[value(name = "-name", alias = "-n", hide = true)]
    NameDown,
    /// With --cull: text of the call stack
    #[value(aliases = ["st", "+st", "+stacktrace"], hide = true)]
    Stacktrace,
    /// Text of the call stack, last one first
    #[value(name = "-stacktrace", alias = "-st", hide = true)]
    StacktraceDown,
    /// With --cull: allocators
    #[value(aliases = ["ator", "+ator", "+allocator"], hide = true)]
    Allocator,
    /// Allocators, last one first
    #[value(name = "-allocator", alias = "-ator", hide = true)]
    AllocatorDown,
    /// Time of the oldest block, oldest first
    #[value(name = "alloc_ts", aliases = ["at", "+at", "+alloc_ts"], hide = true)]
    AllocTs,
    /// Time of the oldest block, youngest first
    #[value(name = "-alloc_ts", alias = "-at", hide = true)]
    AllocTsDown,
    /// Earliest time at which an owner before gave a page back, earliest first
    #[value(name = "free_ts", aliases = ["ft", "+ft", "+free_ts"], hide = true)]
    FreeTs,
    /// Earliest time at which an owner before gave a page back, latest first
    #[value(name = "-free_ts", alias = "-ft", hide = true)]
    FreeTsDown,
}

impl SortBy {
    /// Key of the library; `None` for an order that rows of figures do not have.
    pub(crate) fn key(self) -> Option<SortKey> {
        let up = |key| SortKey::Key { key, is_descending: false };
        let down = |key| SortKey::Key { key, is_descending: true };
        Some(match self {
            SortBy::Wasted => SortKey::Wasted,
            SortBy::LiveWasted => SortKey::LiveWasted,
            SortBy::Live => SortKey::Live,
            SortBy::Peak => SortKey::Peak,
            SortBy::Total => SortKey::Allocated,
            SortBy::Requested => SortKey::Requested,
            SortBy::Allocs => SortKey::Allocs,
            SortBy::Frees => SortKey::Frees,
            SortBy::Cross => SortKey::Cross,
            SortBy::Site => SortKey::Site,
            SortBy::Growth => SortKey::Growth,
            SortBy::Static => SortKey::Static,
            SortBy::Current => SortKey::Current,
            SortBy::Time => return None,
            SortBy::Pid => up(GroupKey::Pid),
            SortBy::PidDown => down(GroupKey::Pid),
            SortBy::Tgid => up(GroupKey::Tgid),
            SortBy::TgidDown => down(GroupKey::Tgid),
            SortBy::Name => up(GroupKey::Comm),
            SortBy::NameDown => down(GroupKey::Comm),
            SortBy::Stacktrace => up(GroupKey::Stack),
            SortBy::StacktraceDown => down(GroupKey::Stack),
            SortBy::Allocator => up(GroupKey::Allocator),
            SortBy::AllocatorDown => down(GroupKey::Allocator),
            // The events stand at the time that is asked for.
            SortBy::AllocTs | SortBy::FreeTs => SortKey::Oldest { is_descending: false },
            SortBy::AllocTsDown | SortBy::FreeTsDown => SortKey::Oldest { is_descending: true },
        })
    }
}

impl Word for SortBy {
    fn possible(&self) -> PossibleValue {
        self.to_possible_value().unwrap_or_default()
    }

    fn of_word(word: &str) -> Result<SortBy, String> {
        SortBy::from_str(word, false)
    }
}
