//! Commands that `summary` names: each one runs on the trace that it was named for.

use std::fs;
use std::path::Path;

use kmemtrace_tests::programs::{data, run, text};
use kmemtrace_tests::recording::Directory;

const REPORT: &str = "kmemtrace-report";

/// Recordings of different events, kernels and verdicts.
const RECORDINGS: [&str; 9] = [
    "amd64-6.1",
    "amd64-6.1-lossy",
    "amd64-6.18",
    "arm64-16k-6.12",
    "excache",
    "i386-6.1",
    "latency-amd64-6.18",
    "ppc64el-6.1",
    "s390x-6.1",
];

/// Lines of a view with the options that it needs besides a trace, one of which has to run: a text has stacks or single objects to export.
fn lines(view: &str, dir: &Path) -> Vec<Vec<String>> {
    let file = |name: &str| dir.join(name).display().to_string();
    let options: &[&[&str]] = match view {
        "html" => &[&["-fo", &file("page.html")]],
        "chart" => &[&["-fo", &file("rings.svg")]],
        "export" => &[&["--to", "folded"], &["--to", "csv"]],
        "top" => &[&["--once"]],
        _ => &[&[]],
    };
    let line = |options: &&[&str]| [&[view], *options].concat().into_iter().map(str::to_owned).collect();
    options.iter().map(line).collect()
}

#[test]
fn each_command_that_a_summary_names_runs() {
    let mut commands = 0;
    for name in RECORDINGS {
        let trace = data(name);
        let summary = text(&run(REPORT, &["summary"], &[&trace]).stdout);
        let shown = trace.display().to_string();
        let next = summary.lines().skip_while(|line| *line != "Next").skip(1);
        for line in next.take_while(|line| line.starts_with("  ")) {
            // Another recording needs a kernel.
            let Some((command, _)) = line.trim().split_once(&format!(" {shown}")) else {
                assert!(line.trim().starts_with("kmemtraced "), "{name}: {line}");
                continue;
            };
            let mut words = command.split(' ');
            let program = words.next().unwrap_or_default();
            let words: Vec<&str> = words.collect();
            let output = run(program, &words, &[&trace]);
            // Of a lossy trace the check says so by its status.
            let allowed = if program == REPORT { &[0][..] } else { &[0, 1] };
            assert!(output.status.code().is_some_and(|status| allowed.contains(&status)), "{name}: {line}");
            assert!(!output.stdout.is_empty(), "{name}: {line}");
            commands += 1;
        }
    }
    assert!(commands >= RECORDINGS.len(), "{commands}");
}

#[test]
fn what_calls_a_wrapper_is_unknown_only_without_stacks() {
    for (name, note) in
        [("amd64-6.1", "which of them is not known."), ("page_owner-amd64-6.1.txt.zst", "--by stack shows them.")]
    {
        let table = text(&run(REPORT, &["sites"], &[&data(name)]).stdout);
        let marks = table.lines().find(|line| line.starts_with("~ marks ")).unwrap_or_default();
        assert!(marks.ends_with(note), "{name}: {marks}");
    }
}

#[test]
fn each_view_that_a_text_s_summary_names_runs() {
    let place = Directory::new(&[]);
    let texts = fs::read_dir(data("texts")).unwrap().map(|entry| entry.unwrap().path());
    let mut views = 0;
    for file in texts {
        let summary = text(&run(REPORT, &["summary"], &[&file]).stdout);
        let named = |begin: &str| summary.lines().find_map(|line| line.strip_prefix(begin));
        let Some(next) = named("Next: kmemtrace-report ") else { continue };
        let first = next.split(' ').next().into_iter();
        let others = named("Views of such a text, too: ").into_iter().flat_map(|list| list.split(", "));
        for view in first.chain(others) {
            // `compare` takes two, and `growth` a series.
            let files: &[&Path] = if ["compare", "growth"].contains(&view) { &[&file, &file] } else { &[&file] };
            let told = lines(view, place.path()).into_iter().map(|words| {
                let output = run(REPORT, &words.iter().map(String::as_str).collect::<Vec<_>>(), files);
                if output.status.success() { None } else { Some(text(&output.stderr)) }
            });
            let told: Vec<Option<String>> = told.collect();
            assert!(told.contains(&None), "{}: {view}: {told:?}", file.display());
            views += 1;
        }
    }
    assert!(views > 20, "{views}");
}
