//! Words that people type for others, each with the line that they meant.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use kmemtrace_abi::text::escape::escape;

use super::commands::PROGRAM;
use crate::views::View;

/// First words that are no view, and the words to type in their place; none where the word is to be left out.
const VIEWS_OF_OTHERS: [(&str, &[&str]); 8] = [
    ("diff", &["compare"]),
    ("leak", &["leaks"]),
    ("report", &[]),
    ("stats", &["summary"]),
    ("cgroups", &["sites", "--by", "cgroup"]),
    ("processes", &["tasks"]),
    ("stacks", &["tree", "--by", "stack"]),
    ("pages", &["sites", "--kind", "pages"]),
];
/// First word of other recorders.
const RECORD: &str = "record";

/// Keys of `--by` of other tools, and ours.
const KEYS_OF_OTHERS: [(&str, &str); 4] =
    [("process", "tgid"), ("thread", "task"), ("threads", "task"), ("callsite", "site")];

/// Keys of `--sort` of other tools, perf first of all, and the words for them here.
const SORT_KEYS_OF_OTHERS: [(&str, &str); 15] = [
    ("size", "--sort total"),
    ("comm", "--by comm"),
    ("pid", "--by tgid"),
    ("tid", "--by pid"),
    ("dso", "--by module"),
    ("symbol", "--by function"),
    ("sym", "--by function"),
    ("srcline", "--by source"),
    ("order", "--by order"),
    ("gfp", "--by gfp"),
    ("callsite", "--by site"),
    ("bytes", "--sort total"),
    ("hit", "--sort allocs"),
    ("frag", "--sort wasted"),
    ("pingpong", "--sort cross"),
];

/// Options of perf that no view has, and what to use in their place.
const OPTIONS_OF_PERF: [(&[&str], &str); 17] = [
    (&["--tui", "--gtk"], "tables are text; kmemtraced top shows a screen, html makes a page"),
    (&["-S", "--symbols", "--symbol-filter"], "use --site FUNCTION"),
    (&["-C", "--comms"], "use --comm NAME"),
    (&["-d", "--dsos"], "use --module NAME"),
    (&["-p", "--tid"], "use --pid or --comm"),
    (&["-g", "--call-graph", "--children", "--no-children", "-G", "--inverted"], "use tree --by stack"),
    (&["-F", "--fields"], "use --format csv, which has every column"),
    (&["--percent-limit"], "use -n N, or --throttle P of tree"),
    (&["--header", "--header-only", "-I", "--show-info"], "the first lines of every table have it"),
    (&["-D", "--dump-raw-trace"], "use the view events"),
    (&["-l", "--line"], "use -n N"),
    (&["--caller"], "use the view sites"),
    (&["--alloc"], "use live --objects"),
    (&["--live"], "use the view live"),
    (&["--slab"], "use --kind kmalloc,cache"),
    (&["--page"], "use --kind pages"),
    (&["--raw-ip"], "use --show-addresses"),
];

/// Options that people expect and no view has, and what to use in their place.
const OPTIONS_OF_NONE: [(&[&str], &str); 7] = [
    (&["--stack", "--stacks"], "use --by stack, or tree --by stack"),
    (&["--since", "--until", "--last"], "use --time FROM,TO, such as +10s, or 50%,"),
    (&["--limit", "--lines", "--head"], "use -n N"),
    (&["--group-by", "--groupby"], "use --by KEY,..."),
    (&["--cpu", "--cpus"], "all CPUs are in every view; cross shows frees on another CPU, and events the CPU of each"),
    (&["--report"], "use --memstrack LIST for reports of memstrack, or name a view"),
    (&["--notui", "--nogui", "--no-tui"], "use top --once, which prints the screen as text"),
];

/// Files that tell a recording or a captured tree from other directories.
const PARTS_OF_TRACES: [&str; 3] = ["meta.out", "cpu0.out", "per_cpu"];

/// Refusal of a command line whose first word is of another tool; `None` if it is not, or names a file.
pub(super) fn first_word(words: &[OsString]) -> Option<String> {
    let word = words.get(1)?.to_str()?;
    if Path::new(word).exists() {
        return None;
    }
    if word == RECORD {
        return Some(format!("record: another program records: {}", line("kmemtraced", &words[2..])));
    }
    let (_, right) = VIEWS_OF_OTHERS.iter().find(|(other, _)| *other == word)?;
    let mended: Vec<OsString> = right.iter().map(OsString::from).chain(words[2..].iter().cloned()).collect();
    Some(format!("{word}: not a view; type {}", line(PROGRAM, &mended)))
}

/// Refusal of a key of another tool in `--by`, as the parser has found it.
pub(super) fn key(words: &[OsString], error: &clap::Error) -> Option<String> {
    let (ErrorKind::InvalidValue, Some(ContextValue::String(option)), Some(ContextValue::String(given))) =
        (error.kind(), error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return None;
    };
    if !option.starts_with("--by") {
        return None;
    }
    let (other, ours) = KEYS_OF_OTHERS.iter().find(|(other, _)| other == given)?;
    let mended: Vec<OsString> = words.iter().skip(1).map(|word| with_key(word, other, ours)).collect();
    let threads = if *other == "process" { " (texts of page_owner alone have it; threads: --by task)" } else { "" };
    Some(format!("--by {other}: the key is {ours}; type {}{threads}", line(PROGRAM, &mended)))
}

/// Line about an option that no view has, or a sort key of perf, that the parser has refused.
pub(super) fn option(words: &[OsString], error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    match (error.kind(), error.get(ContextKind::InvalidValue)) {
        (ErrorKind::UnknownArgument, _) => {
            let name = option.split('=').next().unwrap_or(option);
            let remedy = |table: &[(&[&str], &'static str)]| {
                table.iter().find(|(names, _)| names.contains(&name)).map(|(_, remedy)| *remedy)
            };
            let of_perf = remedy(&OPTIONS_OF_PERF).map(|remedy| format!("{name} is an option of perf: {remedy}"));
            of_perf.or_else(|| Some(format!("{name}: no view has this option: {}", remedy(&OPTIONS_OF_NONE)?)))
        }
        (ErrorKind::InvalidValue | ErrorKind::ValueValidation, Some(ContextValue::String(given)))
            if option.starts_with("--sort") =>
        {
            // The parser takes the list apart.
            let mut lists =
                words.iter().filter_map(|word| word.to_str()).map(|word| word.trim_start_matches("--sort="));
            let list = lists.find(|list| list.split(',').any(|key| key == given)).unwrap_or(given);
            let ours = sorted_as_perf(list).or_else(|| sorted_as_perf(given))?;
            Some(format!("--sort {list}: keys of other tools: use the view sites with {ours}"))
        }
        _ => None,
    }
}

/// Options for a list of sort keys of perf, of which each is known.
fn sorted_as_perf(list: &str) -> Option<String> {
    let (mut by, mut sort) = (Vec::new(), Vec::new());
    for key in list.split(',') {
        let (_, ours) = SORT_KEYS_OF_OTHERS.iter().find(|(other, _)| *other == key)?;
        match ours.split_once(' ')? {
            ("--by", key) => by.push(key),
            (_, key) => sort.push(key),
        }
    }
    let option = |name, keys: Vec<&str>| (!keys.is_empty()).then(|| format!("{name} {}", keys.join(",")));
    let options: Vec<String> = [option("--by", by), option("--sort", sort)].into_iter().flatten().collect();
    Some(options.join(" "))
}

/// A word of the command line with one key of a list replaced.
fn with_key(word: &OsStr, other: &str, ours: &str) -> OsString {
    let Some(text) = word.to_str() else { return word.to_owned() };
    let (option, list) = match text.strip_prefix("--by=") {
        Some(list) => ("--by=", list),
        None => ("", text),
    };
    let keys: Vec<&str> = list.split(',').map(|key| if key == other { ours } else { key }).collect();
    format!("{option}{}", keys.join(",")).into()
}

/// Refusal of a view that is taken for the trace of the same name in the working directory.
pub(super) fn trace_of_a_view_s_name(view: &View) -> Option<String> {
    let dir = Path::new(view.name);
    let is_trace = PARTS_OF_TRACES.iter().any(|part| dir.join(part).exists());
    let name = view.name;
    is_trace.then(|| {
        format!(
            "{name} is a view; for the directory write ./{name}: {PROGRAM} ./{name}, for the view {PROGRAM} {name} ./kmemtrace.data"
        )
    })
}

fn line(program: &str, words: &[OsString]) -> String {
    let words = words.iter().map(|word| escape(word.as_encoded_bytes()).into_owned());
    std::iter::once(program.to_owned()).chain(words).collect::<Vec<String>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn words_of_other_tools_get_the_line_to_type() {
        for (typed, told) in [
            ("kmemtrace-report diff a b", "diff: not a view; type kmemtrace-report compare a b"),
            ("kmemtrace-report report x", "report: not a view; type kmemtrace-report x"),
            ("kmemtrace-report record -d 5", "record: another program records: kmemtraced -d 5"),
        ] {
            assert_eq!(first_word(&words(typed)).as_deref(), Some(told));
        }
        assert_eq!(first_word(&words("kmemtrace-report summary diff")), None);
        assert_eq!(first_word(&words("kmemtrace-report")), None);
    }

    #[test]
    fn keys_of_other_tools_get_the_line_to_type() {
        let told = |line: &str| {
            let words = words(line);
            super::super::commands::program()
                .try_get_matches_from(words.clone())
                .err()
                .and_then(|error| key(&words, &error))
        };
        assert_eq!(
            told("kmemtrace-report sites --by process,site d").unwrap(),
            "--by process: the key is tgid; type kmemtrace-report sites --by tgid,site d (texts of page_owner alone have it; threads: --by task)"
        );
        assert_eq!(
            told("kmemtrace-report sites --by=thread d").unwrap(),
            "--by thread: the key is task; type kmemtrace-report sites --by=task d"
        );
        assert_eq!(told("kmemtrace-report sites --by colour d"), None);
    }

    #[test]
    fn options_of_perf_are_told_and_none_is_ours() {
        let option_of = |line: &str| {
            let words = words(line);
            let error = super::super::commands::program().try_get_matches_from(&words).err();
            option(&words, &error.unwrap_or_else(|| panic!("{line}")))
        };
        for (names, remedy) in OPTIONS_OF_PERF {
            for name in names {
                for line in [format!("kmemtrace-report {name}"), format!("kmemtrace-report sites {name}")] {
                    assert_eq!(option_of(&line), Some(format!("{name} is an option of perf: {remedy}")), "{line}");
                }
            }
        }
        for (names, remedy) in OPTIONS_OF_NONE {
            for name in names {
                let line = format!("kmemtrace-report live {name}");
                assert_eq!(option_of(&line), Some(format!("{name}: no view has this option: {remedy}")), "{line}");
            }
        }
        for (key, ours) in SORT_KEYS_OF_OTHERS {
            let line = format!("kmemtrace-report caches --sort {key}");
            assert!(option_of(&line).is_some_and(|line| line.contains(ours)), "{line}");
            let mended = super::super::commands::program().try_get_matches_from(words(&format!("r sites {ours}")));
            assert!(mended.is_ok(), "{ours}");
        }
        let list = option_of("kmemtrace-report sites --sort comm,symbol,hit");
        assert!(list.as_ref().is_some_and(|line| line.contains("with --by comm,function --sort allocs")), "{list:?}");
        assert_eq!(option_of("kmemtrace-report --nonsense"), None);
    }
}
