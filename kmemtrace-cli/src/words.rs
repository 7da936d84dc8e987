//! The table of words. Every other word is a view, which `kmemtrace-report` knows.

/// Program that records.
pub(crate) const RECORDER: &str = "kmemtraced";
/// Program that checks recordings.
pub(crate) const CHECK: &str = "kmemtrace-check";
/// Program that prints views.
pub(crate) const REPORT: &str = "kmemtrace-report";

/// Word of the command that another program does the work of.
pub(crate) struct Word {
    /// The word.
    pub(crate) name: &'static str,
    /// Program that does the work.
    pub(crate) program: &'static str,
    /// The program takes the word as well.
    pub(crate) is_passed_on: bool,
    /// Meaning in one line; empty for a second name of a word.
    pub(crate) meaning: &'static str,
}

/// Words, in the order of help.
pub(crate) const WORDS: [Word; 8] = [
    word("record", RECORDER, false, "Record until Ctrl-C, a limit, or the end of a command"),
    word("top", RECORDER, true, "Record, and show who takes memory now: the live screen"),
    word("watch", RECORDER, true, "Record, and print each wait for memory as it ends"),
    word("doctor", RECORDER, true, "Print what this machine can record, and how to get the rest"),
    word("probe", RECORDER, true, ""),
    word("recover", RECORDER, true, "Undo the changes of a killed recorder in the kernel"),
    word("check", CHECK, false, "Say of each file of a recording whether it is whole"),
    word("report", REPORT, false, "Print a view; without one the summary"),
];

const fn word(name: &'static str, program: &'static str, is_passed_on: bool, meaning: &'static str) -> Word {
    Word { name, program, is_passed_on, meaning }
}

impl Word {
    /// The word of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Word> {
        WORDS.iter().find(|word| word.name == name)
    }
}

/// Words that the command answers itself.
pub(crate) const OWN: [(&str, &str); 2] = [
    ("help", "Explain a word or a view: kmemtrace help leaks"),
    ("completions", "Print completions for a shell: bash, zsh or fish"),
];

/// Words of perf, trace-cmd and version control, and what to type in their place.
pub(crate) const WORDS_OF_OTHERS: [(&str, &str); 11] = [
    ("kmem", "kmemtrace record, then kmemtrace sites (perf kmem stat --caller), caches, or live"),
    ("stat", "kmemtrace summary"),
    ("script", "kmemtrace events"),
    ("show", "kmemtrace events"),
    ("list", "kmemtrace doctor, which lists the events of this kernel"),
    ("annotate", "kmemtrace sites --by source"),
    ("archive", "kmemtrace pack"),
    ("evlist", "kmemtrace check"),
    ("diff", "kmemtrace compare BEFORE AFTER"),
    ("leak", "kmemtrace leaks"),
    ("stream", "kmemtrace watch"),
];

/// What people want, and the command for it.
pub(crate) const WANTED: [(&str, &str); 6] = [
    ("Find a leak", "kmemtrace record -d 1min && kmemtrace leaks"),
    ("See who holds memory", "kmemtrace record -d 10 && kmemtrace summary"),
    ("See who takes memory right now", "kmemtrace top"),
    ("See who waits for memory", "kmemtrace watch"),
    ("Mail it to a maintainer", "kmemtrace html -o page.html"),
    ("See what this machine offers", "kmemtrace doctor"),
];
