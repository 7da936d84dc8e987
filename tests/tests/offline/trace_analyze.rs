//! The old program's command line, and documents that are saved and read in place of a trace.

use std::fs;
use std::path::{Path, PathBuf};

use kmemtrace_tests::generate::{Random, trace_dir};
use kmemtrace_tests::programs::{data, json, run, run_to};
use kmemtrace_tests::recording::{Directory, random_workload};
use kmemtrace_tests::runs::seeds;
use serde_json::Value;

const REPORT: &str = "kmemtrace-report";

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// Runs the old command line, whose files go to `dir`; returns what it says.
fn old(line: &[&str], dir: &Directory) -> String {
    let line: Vec<String> = line
        .iter()
        .map(|word| word.strip_prefix("@").map_or((*word).to_owned(), |name| dir.file(name).display().to_string()))
        .collect();
    let line: Vec<&str> = ["trace-analyze"].into_iter().chain(line.iter().map(String::as_str)).collect();
    let output = run(REPORT, &line, &[]);
    let said = text(output.stderr);
    assert_eq!(output.status.code(), Some(0), "{line:?}: {said}");
    said
}

/// Document of call-sites of a trace, saved in `dir`.
fn saved(trace: &Path, dir: &Directory) -> PathBuf {
    let file = dir.file("saved.json");
    old(&["-f", trace.to_str().unwrap(), "--save-db", "@saved.json"], dir);
    file
}

#[test]
fn old_options_make_what_views_make() {
    let (trace, dir) = (data("amd64-6.1"), Directory::new(&[]));
    let path = trace.to_str().unwrap();
    let said = old(&["-f", path, "-c", "@account", "-o", "waste", "--malloc", "-l", "@callers", "-r", "@rings"], &dir);
    assert_eq!(said, "");
    let view = |line: &[&str]| text(run_to(0, REPORT, line, &[&trace]));
    let file = |name: &str| fs::read_to_string(dir.file(name)).unwrap();
    assert_eq!(file("account"), view(&["account", "--sort", "waste", "--kind", "kmalloc"]));
    assert_eq!(file("callers"), view(&["account", "--style", "callers", "--kind", "kmalloc"]));
    assert!(fs::read(dir.file("rings.png")).unwrap().starts_with(b"\x89PNG"), "a name without an ending is a PNG");
    // Files were overwritten, and long options may be shortened.
    old(&["--file", path, "--account-f", "@account", "--order-by=free_count"], &dir);
    assert_eq!(file("account"), view(&["account", "--sort", "frees"]));
    let nothing = old(&["-f", path], &dir);
    assert!(nothing.contains("nothing to write: name a file with -c"), "{nothing}");
}

#[test]
fn what_the_old_program_refused_is_refused() {
    let (trace, dir) = (data("amd64-6.1"), Directory::new(&[]));
    let trace = trace.to_str().unwrap();
    let pickle = dir.file("pickle");
    fs::write(&pickle, "S'/usr/src/linux'\np0\n.(i__main__\nEventDB\np1\n").unwrap();
    for (line, said) in [
        (&["-f", trace, "-c", "x", "-o", "size"][..], "invalid value 'size'"),
        (&["-f", trace, "-r", "x.pdf"], "use FILE.svg or FILE.png"),
        (&["-f", trace, "-r", "/dev/full"], "/dev/full: no picture has such a name"),
        (
            &["--db-file", pickle.to_str().unwrap(), "-c", "x"],
            "a Python pickle, as trace_analyze saved them; save a document",
        ),
        (&["-f", trace, "-r", "x.png", "-a", "static"], "need a built tree"),
        (&["--format", "json", "-f", trace], "unexpected argument '--format'"),
        (&["-k", "/proc/self/fdinfo", "-r", "x.png"], "/proc/self/fdinfo"),
    ] {
        let line: Vec<&str> = ["trace-analyze"].iter().chain(line).copied().collect();
        let output = run(REPORT, &line, &[]);
        let stderr = text(output.stderr);
        assert_eq!(
            output.status.code().filter(|code| [2, 3].contains(code)),
            output.status.code(),
            "{line:?}: {stderr}"
        );
        assert!(stderr.contains(said), "{line:?}: {stderr}");
    }
    for made in ["x", "x.png", "/dev/full.png"] {
        assert!(!Path::new(made).exists(), "{made}");
    }
}

/// Sets the peaks of all nodes of a tree to null.
fn take_peaks(node: &mut Value) {
    for member in ["peak_live_allocated", "peak_live_pages"] {
        node.get_mut(member).map(Value::take);
    }
    node.get_mut("children").and_then(Value::as_array_mut).into_iter().flatten().for_each(take_peaks);
}

/// Compares views of a saved document with those of the trace that it was saved from.
fn assert_same_views(what: &str, trace: &Path) {
    let dir = Directory::new(&[]);
    let document = saved(trace, &dir);
    for view in [
        &["sites"][..],
        &["sites", "--sort", "allocs", "--top", "3"],
        &["tree"],
        &["tree", "--kind", "kmalloc", "--sort", "total"],
        &["account"],
        &["account", "--kind", "pages"],
        &["account", "--site", "*a*", "--sort", "frees"],
        &["tree", "--module", "*"],
    ] {
        let printed = |input: &Path| json(&run_to(0, REPORT, &[view, &["--format", "json"]].concat(), &[input]));
        let (mut of_trace, mut of_document) = (printed(trace), printed(&document));
        assert_eq!(of_document["trace"]["input"], "document", "{what}");
        for document in [&mut of_trace, &mut of_document] {
            document["trace"]["input"] = Value::Null;
            // Modules are counted as they are asked for.
            document["names"] = Value::Null;
        }
        // Peaks of folders are no sums of those of call-sites.
        of_trace.get_mut("root").into_iter().for_each(take_peaks);
        assert_eq!(of_trace, of_document, "{what}, {view:?}");
    }
}

#[test]
fn a_saved_document_has_the_figures_of_its_trace() {
    for name in ["amd64-6.1", "amd64-6.1-lossy", "amd64-6.18", "s390x-6.1"] {
        assert_same_views(name, &data(name));
    }
    for seed in seeds(0..24) {
        let (_, workload) = random_workload(seed, 300);
        assert_same_views(&format!("seed {seed}"), Directory::new(&trace_dir(&workload, seed)).path());
    }
}

#[test]
fn pages_and_pictures_are_made_of_a_document() {
    let dir = Directory::new(&[]);
    let document = saved(&data("amd64-6.1"), &dir);
    let page = dir.file("page.html");
    run_to(0, REPORT, &["html", "-o", page.to_str().unwrap()], &[&document]);
    assert!(fs::read_to_string(&page).unwrap().contains("do_epoll_create"));
    let picture = |input: &Path, name: &str| {
        let file = dir.file(name);
        run_to(0, REPORT, &["chart", "-o", file.to_str().unwrap()], &[input]);
        let svg = fs::read_to_string(file).unwrap();
        svg.lines().filter(|line| line.starts_with("<path")).map(str::to_owned).collect::<Vec<_>>()
    };
    let wedges = picture(&document, "document.svg");
    assert!(wedges.len() > 10);
    // The whole has another name.
    assert_eq!(wedges[1..], picture(&data("amd64-6.1"), "trace.svg")[1..]);
}

#[test]
fn a_filter_that_takes_nothing_counts_the_documents_allocations() {
    let dir = Directory::new(&[]);
    let (trace, document) = (data("amd64-6.1"), saved(&data("amd64-6.1"), &dir));
    let counted = |input: &Path| {
        let table = text(run_to(0, REPORT, &["sites", "--no-index", "--site", "no_such_function"], &[input]));
        table.lines().last().unwrap().to_owned()
    };
    let of_trace = counted(&trace);
    assert!(of_trace.contains(": 0 of 11,"), "{of_trace}");
    assert_eq!(counted(&document), of_trace);
}

#[test]
fn what_a_document_does_not_have_is_refused() {
    let dir = Directory::new(&[]);
    let document = saved(&data("amd64-6.1"), &dir);
    let cut = dir.file("cut.json");
    run_to(0, REPORT, &["sites", "--format", "json", "-n", "3", "-o", cut.to_str().unwrap()], &[&data("amd64-6.1")]);
    let summary = dir.file("summary.json");
    run_to(0, REPORT, &["summary", "--format", "json", "-o", summary.to_str().unwrap()], &[&data("amd64-6.1")]);
    for (line, input, said) in [
        (
            &["account", "--style", "slab-account"][..],
            &document,
            "no frees by their own callers: name the trace itself",
        ),
        (&["mismatch"], &document, "mismatch needs a trace; sites, tree, account, html, chart take"),
        (&["summary"], &document, "summary needs a trace"),
        (&["tree", "--comm", "sh"], &document, "has no threads"),
        (&["account", "--time", "10%,"], &document, "has no times of events"),
        (&["sites", "--by", "comm"], &document, "has no groups but call-sites"),
        (&["tree", "--size", "..64"], &document, "has no sizes of objects"),
        (&["account"], &cut, "has only some of the call-sites"),
        (&["account"], &summary, "is not a saved document of call-sites"),
    ] {
        let output = run(REPORT, line, &[input]);
        let stderr = text(output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{line:?}: {stderr}");
        assert!(stderr.contains(said) && stderr.lines().count() == 1, "{line:?}: {stderr}");
    }
}

#[test]
fn a_sentence_about_a_document_quotes_little_of_it() {
    let dir = Directory::new(&[]);
    let document = fs::read_to_string(saved(&data("amd64-6.18"), &dir)).unwrap();
    let (file, long) = (dir.file("long.json"), "ä".repeat(100_000));
    let no_object = format!("{{\"schema\": \"kmemtrace.sites/1\", \"completeness\": \"{long}\"}}");
    for (bytes, said) in [
        (document.replace("kmemtrace.sites/1", &format!("kmemtrace.{long}/9")), "and only kmemtrace.sites/1 is read"),
        (document.replace("\"kmalloc\"", &format!("\"{long}\"")), "has a row of an unknown kind: ää"),
        (document.replace("\"0xffffffff", &format!("\"{long}")), "has a row whose call_site is not an address: ää"),
        (no_object, "is not a saved document of call-sites"),
    ] {
        fs::write(&file, bytes).unwrap();
        let output = run(REPORT, &["account"], &[&file]);
        let stderr = text(output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(said) && stderr.len() < 1000 && stderr.lines().count() == 1, "{said}: {stderr}");
    }
}

#[test]
fn a_damaged_document_is_refused_or_read() {
    let dir = Directory::new(&[]);
    let document = fs::read(saved(&data("amd64-6.18"), &dir)).unwrap();
    let (file, mut random) = (dir.file("damaged.json"), Random::new(7));
    let greatest = String::from_utf8(document.clone()).unwrap().replace("\"allocs\": ", "\"allocs\": 9999999999999999");
    let mut refused = 0;
    for round in 0..150 {
        let bytes = match round {
            0 => greatest.clone().into_bytes(),
            1 => b"{".repeat(100_000),
            2 => document[..document.len() / 2].to_vec(),
            _ => {
                let mut bytes = document.clone();
                for _ in 0..1 + random.below(4) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = *random.pick(b"0123456789\"{}[],:-+xn\\\xff e");
                }
                bytes
            }
        };
        fs::write(&file, &bytes).unwrap();
        for view in [&["account"][..], &["tree", "--format", "json"]] {
            let output = run(REPORT, view, &[&file]);
            let stderr = text(output.stderr);
            assert!(matches!(output.status.code(), Some(0 | 2 | 3)), "round {round}, {view:?}: {stderr}");
            refused += usize::from(output.status.code() != Some(0));
        }
    }
    assert!(refused > 50, "{refused}");
    fs::write(&file, &document).unwrap();
    let output = run(REPORT, &["tree", "--sort", "peak"], &[&file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(output.stderr).contains("a saved document has peaks of call-sites, and none of folders"));
}
