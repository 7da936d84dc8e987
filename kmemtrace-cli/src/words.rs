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
    ("help", "Explain a word or a view; help perf lists words of perf"),
    ("completions", "Print completions for a shell: bash, zsh or fish"),
];

/// The program whose words people know; `kmemtrace help perf` lists them.
pub(crate) const PERF: &str = "perf";

/// What prints events, as several words of others do.
pub(crate) const EVENTS: &str = "kmemtrace events";

/// Words of perf, trace-cmd, memstrack and version control, and what to type in their place. Lines of `perf kmem` have a module of their own.
pub(crate) const WORDS_OF_OTHERS: [(&str, &str); 22] = [
    ("stat", "kmemtrace record -- COMMAND, then kmemtrace summary"),
    ("script", EVENTS),
    ("show", EVENTS),
    ("list", "kmemtrace doctor, which lists what this kernel records"),
    ("annotate", "kmemtrace sites --by source"),
    ("archive", "kmemtrace pack, which makes a recording smaller; its symbols are in it"),
    ("evlist", "kmemtrace check"),
    ("diff", "kmemtrace compare BEFORE AFTER"),
    ("data", "kmemtrace export --to FORMAT"),
    ("trace", "kmemtrace watch"),
    ("ftrace", "kmemtrace record --functions, then kmemtrace functions"),
    ("leak", "kmemtrace leaks"),
    ("stream", "kmemtrace watch"),
    ("start", "kmemtrace record, which Ctrl-C ends"),
    ("stop", "Ctrl-C where kmemtrace record runs; kmemtrace recover removes what a killed recorder left"),
    ("extract", "kmemtrace record, which writes while it records"),
    ("reset", "kmemtrace recover"),
    ("restore", "kmemtrace recover"),
    ("dump", EVENTS),
    ("slabtop", "kmemtrace caches, or kmemtrace top"),
    ("memstrack", "kmemtrace record -e page --stack, then kmemtrace modules"),
    ("version", "kmemtrace --version"),
];

/// What people type at perf, and the same here.
pub(crate) const TWINS: [(&str, &str); 20] = [
    ("perf kmem record", "kmemtrace record"),
    ("perf kmem record --page", "kmemtrace record -e page"),
    ("perf kmem stat", "kmemtrace summary"),
    ("perf kmem stat --caller", "kmemtrace sites"),
    ("perf kmem stat --alloc", "kmemtrace live --objects"),
    ("perf kmem stat --page --live", "kmemtrace live --kind pages"),
    ("perf kmem stat --caller -s frag -l 10", "kmemtrace sites --sort wasted -n 10"),
    ("perf record -a -g", "kmemtrace record -a -g"),
    ("perf record -p PID", "kmemtrace record -p PID"),
    ("perf record -e 'kmem:*' -- COMMAND", "kmemtrace record -e all -- COMMAND"),
    ("perf report -i FILE --stdio", "kmemtrace report -i FILE --stdio"),
    ("perf report -s comm", "kmemtrace sites --by comm"),
    ("perf report -g caller", "kmemtrace tree --by stack"),
    ("perf top", "kmemtrace top"),
    ("perf script", "kmemtrace events"),
    ("perf diff OLD NEW", "kmemtrace compare OLD NEW"),
    ("perf stat -e 'kmem:*'", "kmemtrace summary"),
    ("perf list", "kmemtrace doctor"),
    ("perf trace", "kmemtrace watch"),
    ("perf annotate", "kmemtrace sites --by source"),
];

/// What people want, and the command for it.
pub(crate) const WANTED: [(&str, &str); 6] = [
    ("Find a leak", "kmemtrace record -d 1min && kmemtrace leaks"),
    ("See who holds memory", "kmemtrace record -d 10 && kmemtrace summary"),
    ("See who takes memory right now", "kmemtrace top"),
    ("See who waits for memory", "kmemtrace watch --threshold 5ms"),
    ("Mail it to a maintainer", "kmemtrace html -o page.html"),
    ("See what this machine offers", "kmemtrace doctor"),
];
