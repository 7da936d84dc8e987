//! The command line of the report: views and their options, help, man pages, completions, and the page about them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::programs::{json_lines, program, run, run_to, stderr};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

const REPORT: &str = "kmemtrace-report";
const VIEWS: [&str; 30] = [
    "summary",
    "leaks",
    "sites",
    "tree",
    "tasks",
    "modules",
    "uses",
    "caches",
    "balance",
    "failed",
    "mismatch",
    "live",
    "cross",
    "compare",
    "growth",
    "account",
    "events",
    "latency",
    "shrinkers",
    "stalls",
    "waits",
    "functions",
    "static",
    "names",
    "html",
    "chart",
    "export",
    "top",
    "trace-analyze",
    "pack",
];
/// Classes that `mismatch` lists.
const CLASSES: [&str; 6] =
    ["kind_mismatch", "kind_mismatch_legal", "cache_mismatch", "free_after_free", "inferred_free", "short_alloc"];
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
/// Words of the recorder with a man page.
const VERBS: [&str; 4] = ["top", "watch", "recover", "doctor"];
const PROGRAMS: [&str; 3] = ["kmemtraced", "kmemtrace-check", REPORT];

kmemtrace_tests::tests![
    options_stand_anywhere_behind_the_view,
    a_recording_of_a_view_s_name_is_asked_about,
    an_option_of_another_view_is_refused_by_name,
    a_mistyped_word_is_told_with_the_nearest_one,
    a_filter_that_names_nothing_is_told_with_the_nearest_names => a_filter_that_names_nothing_is_told,
    a_mistyped_event_is_told_with_the_nearest_one,
    gates_end_with_status_1,
    contexts_share_out_the_events,
    help_fits_a_terminal,
    every_class_is_explained,
    the_page_about_views_says_what_help_says,
    the_page_about_views_explains_the_columns_of_help,
    man_pages_render_without_warnings,
    completions_are_scripts_and_complete_views,
    each_slip_is_told_the_line_to_type,
];

fn recording(seed: u64) -> Directory {
    Directory::new(&trace_dir(&workload(seed, &Options::plain(Shape::plain(), 2, 3000)), seed))
}

/// Path in the repository.
fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

fn sample() -> PathBuf {
    in_tree("tests/data/amd64-6.18")
}

/// Text that a run prints which ends well.
fn text(arguments: &[&str]) -> String {
    String::from_utf8(run_to(0, REPORT, arguments, &[])).unwrap()
}

fn options_stand_anywhere_behind_the_view() -> Result<(), Skip> {
    let trace = recording(1);
    let dir = trace.path().to_str().unwrap();
    let printed = |line: &[&str]| run_to(0, REPORT, line, &[]);
    let sites = printed(&["sites", "--format", "json", "-n", "3", dir]);
    for line in [
        &["sites", dir, "-n3", "--format=json"][..],
        &["sites", "-qn", "3", dir, "--format", "json"],
        &["callsites", "--format", "json", dir, "-n", "3"],
        &["sites", "--top", "3", "--format", "json", "--", dir],
    ] {
        assert!(printed(line) == sites, "{line:?}");
    }
    for line in [&["--format", "json", "sites", dir][..], &["-qn", "3", "sites", dir], &[dir, "sites"]] {
        let said = stderr(2, &run(REPORT, line, &[]));
        assert!(
            said.contains("sites: put the view before its options and trace") && said.lines().count() == 1,
            "{said}"
        );
    }
    let summary = printed(&["summary", "--format", "json", dir]);
    for line in [&["--format", "json", dir][..], &[dir, "--format", "json"]] {
        assert!(printed(line) == summary, "{line:?}");
    }
    Ok(())
}

fn a_recording_of_a_view_s_name_is_asked_about() -> Result<(), Skip> {
    let (place, trace) = (Directory::new(&[]), recording(2));
    for name in ["live", "kmemtrace.data", "kmemtrace.data.old"] {
        fs::create_dir(place.file(name)).unwrap();
        for entry in fs::read_dir(trace.path()).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, place.file(name).join(path.file_name().unwrap())).unwrap();
        }
    }
    let run = |line: &[&str]| Command::new(program(REPORT)).current_dir(place.path()).args(line).output().unwrap();
    let printed = |line: &[&str]| {
        let output = run(line);
        assert_eq!(stderr(0, &output), "");
        output.stdout
    };
    let refused = stderr(2, &run(&["live", "--format", "json"]));
    assert!(refused.contains("live is a view; for the directory write ./live"), "{refused}");
    fs::create_dir(place.file("sites")).unwrap();
    assert!(printed(&["sites", "--format", "json"]) == printed(&["sites", "--format", "json", "kmemtrace.data"]));
    for directory in [&["./live", "--format", "json"][..], &["--format", "json", "--", "live"]] {
        assert!(printed(directory) == printed(&["summary", "--format", "json", "kmemtrace.data"]), "{directory:?}");
    }
    let named = &["compare", "--format", "json", "kmemtrace.data.old", "kmemtrace.data"];
    assert!(printed(&["compare", "--format", "json"]) == printed(named), "the recording before, and the last one");
    let two = stderr(2, &run(&["kmemtrace.data.old", "kmemtrace.data"]));
    assert!(two.contains("type kmemtrace-report compare kmemtrace.data.old kmemtrace.data"), "{two}");
    let other = stderr(2, &run(&["diff", "x", "y"]));
    assert!(other.contains("diff: not a view; type kmemtrace-report compare x y"), "{other}");
    Ok(())
}

fn an_option_of_another_view_is_refused_by_name() -> Result<(), Skip> {
    let trace = recording(1);
    for (line, said) in [
        (
            &["growth", "--sort", "live"][..],
            "growth has no --sort (sites, tree, tasks and others have it); it has --by, --top, and",
        ),
        (
            &["summary", "--sort", "wasted"],
            "summary has no --sort (sites, tree, tasks and others have it); it has --fail-on, --explain, and",
        ),
        (
            &["live", "--class", "kind_mismatch"],
            "live has no --class (mismatch has it); it has --by, --objects, --sort, --top, --inlines, and",
        ),
        (&["cross", "-s", "live"], "cross has no --sort (sites, tree, tasks and others have it); it has --top, and"),
        (&["pack", "--format", "json"], "pack has no --format; it has --level"),
        (&["sites", "--fail-over", "10"], "sites has no --fail-over"),
        (&["--top", "3"], "summary has no --top"),
        (&["compare"], "compare: name two traces, or one with --before A,B"),
    ] {
        let line = stderr(2, &run(REPORT, line, &[trace.path()]));
        assert!(line.contains(said) && line.lines().count() == 1, "{line}");
    }
    // A word that another view takes.
    let refused = |line: &[&str]| stderr(2, &run(REPORT, line, &[trace.path()]));
    let line = refused(&["compare", "--by", "gfp", "a"]);
    assert!(line.contains("[possible values: function, cache, stack, module, task, cgroup]"), "{line}");
    let line = refused(&["live", "--sort", "wasted"]);
    assert!(line.contains("[possible values: live, live_wasted, growth, site]"), "{line}");
    // An order or a grouping of objects that are listed by their age would be left out in silence.
    for option in [["--sort", "live"], ["--by", "comm"]] {
        let line = refused(&["live", "--objects", option[0], option[1]]);
        assert!(line.contains("'--objects' cannot be used with") && line.contains(option[0]), "{line}");
    }
    Ok(())
}

fn a_mistyped_word_is_told_with_the_nearest_one() -> Result<(), Skip> {
    let trace = recording(1);
    for (line, said) in [
        (&["summry"][..], "did you mean summary?"),
        (&["help", "mismach"], "did you mean mismatch?"),
        (&["sites", "--srot", "live"], "'--sort'"),
        (&["sites", "--sort", "wastd"], "'wasted'"),
        (&["--context", "softrq"], "'softirq'"),
        (&["mismatch", "--class", "kind_mismach"], "'kind_mismatch'"),
        (&["--pid", "bash"], "a thread id is a number; --comm takes names"),
    ] {
        let output = run(REPORT, line, &[trace.path()]);
        assert!(stderr(2, &output).contains(said), "{line:?}: {output:?}");
    }
    assert!(stderr(2, &run(REPORT, &["completions", "tcsh"], &[])).contains("bash, zsh, fish"));
    let report = Command::new(program("kmemtraced")).args(["--report", "summry"]).output().unwrap();
    assert!(stderr(2, &report).contains("'summary'"), "{report:?}");
    Ok(())
}

fn a_mistyped_event_is_told_with_the_nearest_one() -> Result<(), Skip> {
    let place = Directory::new(&[]);
    let mut recorder = Command::new(program("kmemtraced"));
    recorder.args(["-q", "-B", "kmemtrace-mistyped", "-e", "kmem_cache_aloc"]).current_dir(place.path());
    let line = stderr(2, &recorder.output().unwrap());
    if !line.contains("no such event") {
        return Err(Skip(format!("needs root and tracefs: {}", line.trim_end())));
    }
    assert!(line.contains("did you mean kmem_cache_alloc?"), "{line}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    Ok(())
}

fn a_filter_that_names_nothing_is_told() -> Result<(), Skip> {
    let sample = sample();
    for (options, said) in [
        (["--comm", "kmemstrom"], "--comm kmemstrom: no command of this trace has that name; did you mean kmemstorm"),
        (["--cache", "dentri*"], "did you mean dentry"),
        (["--site", "aloc_inode"], "did you mean alloc_inode"),
        (["--module", "nosuch"], "--module nosuch: no module"),
        (["--comm", "zzzzz"], "a value is a whole name, or a pattern with * and ?"),
    ] {
        for view in ["summary", "sites", "events"] {
            let line = stderr(0, &run(REPORT, &[&[view, "--no-index"], &options[..]].concat(), &[&sample]));
            assert!(line.contains(said), "{view} {options:?}: {line}");
        }
    }
    // A name that is there is none to correct, whatever else leaves nothing over.
    let none = stderr(0, &run(REPORT, &["sites", "--no-index", "--comm", "kmemstorm", "--kind", "pages"], &[&sample]));
    assert_eq!(none, "");
    Ok(())
}

fn gates_end_with_status_1() -> Result<(), Skip> {
    let trace = recording(1);
    let findings =
        &kmemtrace_tests::programs::json(&run_to(0, REPORT, &["--format", "json"], &[trace.path()]))["findings"];
    let class = |has: bool| {
        let errors = |name: &&str| {
            let members = ["count", "suspect", "unseen"].map(|member| findings[*name][member].as_u64());
            let [count, suspect, unseen] = members.map(Option::unwrap_or_default);
            let has_errors = matches!(*name, "kind_mismatch" | "cache_mismatch");
            (count > suspect + if has_errors { unseen } else { 0 }) == has
        };
        CLASSES.into_iter().filter(errors).collect::<Vec<_>>()
    };
    let (loud, quiet) = (class(true), class(false));
    // Kinds and caches that do not match are unseen in this trace, and legal ones are no errors.
    assert!(loud.contains(&"kind_mismatch_legal") && quiet == ["kind_mismatch", "cache_mismatch"], "{findings}");
    for (view, class) in loud.iter().flat_map(|class| [("summary", class), ("mismatch", class)]) {
        let output = run(REPORT, &[view, "--fail-on", class], &[trace.path()]);
        assert!(stderr(1, &output).contains(class) && !output.stdout.is_empty(), "{output:?}");
    }
    for class in quiet {
        stderr(0, &run(REPORT, &["--fail-on", class], &[trace.path()]));
    }
    // A trace that is not complete says less than the gate: --strict goes first.
    fs::remove_file(trace.file("cpu1.out")).unwrap();
    stderr(3, &run(REPORT, &["--strict", "--fail-on", loud[0]], &[trace.path()]));
    Ok(())
}

fn contexts_share_out_the_events() -> Result<(), Skip> {
    let sample = sample();
    let events =
        |options: &[&str]| json_lines(&run_to(0, REPORT, &[&["events", "--no-index"], options].concat(), &[&sample]));
    let all = events(&[]);
    let mut sum = 0;
    for context in ["task", "softirq", "hardirq", "nmi"] {
        let of_context: Vec<_> = all.iter().filter(|line| line["context"] == context).collect();
        let filtered = events(&["--context", context]);
        assert!(filtered.iter().all(|line| line["context"] == context), "{context}");
        assert_eq!(filtered.len(), of_context.len(), "{context}");
        sum += filtered.len();
    }
    assert!(sum > 1000 && sum == all.len(), "{sum} of {}", all.len());
    assert_eq!(events(&["--context", "task,softirq,hardirq,nmi"]).len(), sum);
    Ok(())
}

fn help_fits_a_terminal() -> Result<(), Skip> {
    let too_wide = |text: &str| text.lines().find(|line| line.chars().count() > 80).map(str::to_owned);
    let program_only = [vec!["-h"], vec!["--help"], vec!["help"]];
    let views = VIEWS.iter().flat_map(|view| [vec![*view, "-h"], vec![*view, "--help"], vec!["help", *view]]);
    for line in program_only.into_iter().chain(views) {
        let help = text(&line);
        assert_eq!(too_wide(&help), None, "{line:?}");
        let lines = help.lines().count();
        // The help of the program has a line for each view.
        let limit = if line.len() == 1 { 22 + VIEWS.len() } else { 25 };
        assert!(!line.contains(&"-h") || lines < limit, "{line:?} has {lines} lines");
    }
    for name in PROGRAMS {
        let [short, long] = ["-h", "--help"].map(|option| String::from_utf8(run_to(0, name, &[option], &[])).unwrap());
        assert_eq!((too_wide(&short), too_wide(&long)), (None, None), "{name}");
        assert!(short.lines().count() < 22 + VIEWS.len() && long.contains("Exit status"), "{name}: {short}");
    }
    for view in VIEWS {
        assert!(text(&["-h"]).split_whitespace().any(|word| word == view), "{view} is not in the short help");
        assert!(text(&["--help"]).contains(&format!("\n  {view} ")), "{view} is not in the help of the program");
        assert_eq!(text(&["help", view]), text(&[view, "--help"]), "{view}");
        assert!(text(&[view, "-h"]).contains(&format!("Example: {REPORT} ")), "{view} has no example");
    }
    Ok(())
}

fn every_class_is_explained() -> Result<(), Skip> {
    let help = text(&["help", "mismatch"]);
    let classes = classes(&help);
    assert_eq!(classes.len(), 9, "{classes:?}");
    for class in classes {
        for line in [&["--explain", &class][..], &["mismatch", "--explain", &class]] {
            let said = text(line);
            assert!(said.starts_with(&format!("{class}: ")) && said.lines().count() > 2, "{said}");
            assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
        }
    }
    Ok(())
}

/// Classes in the help of `mismatch`.
fn classes(help: &str) -> BTreeSet<String> {
    let block = help.split_once("\nClasses:\n").unwrap().1.split("\n\n").next().unwrap();
    let names = block.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    names.map(str::to_owned).collect()
}

/// Long options in a help text.
fn options(help: &str) -> BTreeSet<String> {
    let before_columns = help.split("\nColumns of the table").next().unwrap();
    let starts = before_columns.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let long = starts.filter_map(|line| line.split([' ', ',', '=']).find(|word| word.starts_with("--")));
    long.map(str::to_owned).collect()
}

/// Values of an option in a long help text; none if the view has no such option.
fn values(help: &str, option: &str) -> BTreeSet<String> {
    let Some((_, block)) = help.split_once(&format!("{option} <")) else { return BTreeSet::new() };
    let block = block.split_once("Possible values:\n").unwrap().1;
    let lines = block.split("\n\n").next().unwrap().lines().filter_map(|line| line.trim_start().strip_prefix("- "));
    lines.map(|line| line.split(':').next().unwrap().to_owned()).collect()
}

/// First cells of the table below a heading, without backquotes.
fn table(page: &str, heading: &str) -> BTreeSet<String> {
    let (_, section) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no section {heading:?}"));
    let section = section.split("\n#").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    cells.map(str::to_owned).collect()
}

fn the_page_about_views_says_what_help_says() -> Result<(), Skip> {
    let page = fs::read_to_string(in_tree("docs/views.md")).unwrap();
    assert_eq!(table(&page, "## Which view answers what"), VIEWS.map(str::to_owned).into());
    let common = table(&page, "## Options of every view");
    for view in VIEWS {
        let own = table(&page, &format!("### {view}"));
        let of_text =
            ["--format", "--bytes", "--show-addresses", "--color", "--width", "--no-pager"].map(str::to_owned).into();
        let of_objects = [
            "--module",
            "--cache",
            "--site",
            "--kind",
            "--size",
            "--context",
            "--branch",
            "--reclaimable",
            "--accounted",
            "--own",
        ];
        let of_objects: BTreeSet<String> = of_objects.map(str::to_owned).into();
        let of_every_view: &BTreeSet<String> = match view {
            "pack" => &["--help", "--no-config"].map(str::to_owned).into(),
            // Files that are no text lack the options of text; the file of a picture has a form of its own.
            "html" | "export" => &(&common - &of_text),
            "chart" => &(&(&common - &of_text) - &own),
            // Commands without a trace, or with options of their own.
            // Spans of time are no objects.
            "latency" | "shrinkers" | "stalls" | "waits" | "functions" => &(&common - &of_objects),
            "static" | "names" | "top" => &["--no-config".to_owned()].into(),
            "trace-analyze" => &BTreeSet::new(),
            _ => &common,
        };
        let described: BTreeSet<String> = own.union(of_every_view).cloned().collect();
        assert_eq!(options(&text(&["help", view])), described, "{view}");
        assert!(own.is_disjoint(of_every_view), "{view}: an option has two lines");
    }
    let sections = page.lines().filter_map(|line| line.strip_prefix("### ")).collect::<Vec<_>>();
    assert_eq!(sections, VIEWS, "views have a section each, in the order of help");
    for option in ["--by", "--sort"] {
        let helps = VIEWS.map(|view| text(&["help", view]));
        let words: BTreeSet<String> = helps.iter().flat_map(|help| values(help, option)).collect();
        assert_eq!(table(&page, &format!("## Words of {option}")), words);
    }
    assert_eq!(table(&page, "## Classes of findings"), classes(&text(&["help", "mismatch"])));
    Ok(())
}

/// Columns in a long help text, each with its meaning, by the part of the view that they stand in.
fn columns(help: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let blocks = help.split("\nColumns of the table").skip(1);
    let part = |block: &str| {
        let (part, rest) = block.split_once(":\n").unwrap();
        let mut columns = BTreeMap::new();
        let mut title = String::new();
        for line in rest.split("\n\n").next().unwrap().lines().filter_map(|line| line.strip_prefix("  ")) {
            match line.strip_prefix("    ") {
                Some(words) => {
                    let meaning: &mut String = columns.entry(title.clone()).or_default();
                    *meaning = format!("{meaning} {words}").trim_start().to_owned();
                }
                None => title = line.to_owned(),
            }
        }
        (part.to_owned(), columns)
    };
    blocks.map(part).collect()
}

/// Rows of the table below a heading: the first cell and the second, without backquotes.
fn meanings(page: &str, heading: &str) -> BTreeMap<String, String> {
    let (_, section) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no section {heading:?}"));
    let rows = section.split("\n#").next().unwrap().lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.strip_suffix(" |")?.split_once("` | "));
    cells.map(|(title, meaning)| (title.to_owned(), meaning.replace('`', ""))).collect()
}

fn the_page_about_views_explains_the_columns_of_help() -> Result<(), Skip> {
    let page = fs::read_to_string(in_tree("docs/views.md")).unwrap();
    let mut sections = 0;
    for view in VIEWS {
        let parts = columns(&text(&["help", view]));
        let has_no_table = ["names", "html", "chart", "export", "top", "trace-analyze", "pack"].contains(&view);
        assert_eq!(parts.is_empty(), has_no_table, "{view}");
        sections += parts.len();
        for (part, columns) in parts {
            let heading = format!("#### {view}{part}");
            assert_eq!(meanings(&page, &heading), columns, "{heading}");
        }
    }
    assert_eq!(page.lines().filter(|line| line.starts_with("#### ")).count(), sections);
    Ok(())
}

/// Folder with man pages and completions.
fn made() -> Directory {
    let place = Directory::new(&[]);
    run_to(0, "kmemtrace-manual", &[], &[place.path()]);
    place
}

fn man_pages_render_without_warnings() -> Result<(), Skip> {
    let place = made();
    // The recorder is a program for root, and the format has a page without options.
    const FORMAT: &str = "kmemtrace.data.5";
    let mut names: BTreeSet<String> =
        ["kmemtrace.1", "kmemtrace-check.1", "kmemtrace-report.1", "kmemtraced.8", FORMAT].map(str::to_owned).into();
    names.extend(VIEWS.map(|view| format!("{REPORT}-{view}.1")));
    names.extend(VERBS.map(|verb| format!("kmemtraced-{verb}.8")));
    let pages: BTreeSet<String> =
        fs::read_dir(place.file("man")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(pages, names);
    for file in names {
        let (name, _) = file.rsplit_once('.').unwrap();
        let page = place.file(&format!("man/{file}"));
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-l"]).arg(&page).env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8");
        let output =
            man.env("MANROFFOPT", "-c").output().map_err(|error| Skip(format!("man cannot be run: {error}")))?;
        assert_eq!(stderr(0, &output), "", "{name}");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let sections = match &*file {
            FORMAT => &["NAME", "DESCRIPTION", "BLOCK", "VERSIONS", "SEE ALSO"],
            _ => &["NAME", "SYNOPSIS", "OPTIONS", "EXIT STATUS", "SEE ALSO"],
        };
        for section in sections {
            assert!(shown.contains(section), "{name} has no {section}: {shown}");
        }
        if name.starts_with("kmemtraced-") {
            assert!(shown.contains("EXAMPLES"), "{name} has no example: {shown}");
        }
        if let Some(view) = name.strip_prefix(&format!("{REPORT}-")) {
            assert!(shown.contains("EXAMPLES") && shown.contains(&format!("{REPORT} {view} [OPTIONS]")), "{shown}");
        }
        // Bytes and definitions of the format stand as they are.
        let fits = |line: &str| line.chars().count() <= 80 || file == FORMAT && line.starts_with("           ");
        assert!(shown.lines().all(fits), "{name} is wider than 80 columns: {shown}");
    }
    Ok(())
}

fn completions_are_scripts_and_complete_views() -> Result<(), Skip> {
    let place = made();
    for name in PROGRAMS {
        for file in [format!("{name}.bash"), format!("_{name}"), format!("{name}.fish")] {
            let script = fs::read_to_string(place.file(&format!("completions/{file}"))).unwrap();
            assert!(script.contains("--help") || script.contains("-l help"), "{file}");
        }
        let bash = place.file(&format!("completions/{name}.bash"));
        let parsed = Command::new("bash").arg("-n").arg(&bash).output();
        assert_eq!(stderr(0, &parsed.map_err(|error| Skip(format!("bash cannot be run: {error}")))?), "", "{name}");
    }
    for shell in SHELLS {
        let file = [("bash", "kmemtrace-report.bash"), ("zsh", "_kmemtrace-report"), ("fish", "kmemtrace-report.fish")];
        let file = file.into_iter().find(|(name, _)| *name == shell).unwrap().1;
        let script = fs::read_to_string(place.file(&format!("completions/{file}"))).unwrap();
        assert_eq!(text(&["completions", shell]), script, "{shell}");
        assert!(VIEWS.iter().all(|view| script.contains(view)), "{shell} lacks a view");
    }
    for (name, file) in [("kmemtraced", "kmemtraced.bash"), ("kmemtrace-check", "kmemtrace-check.bash")] {
        let script = fs::read_to_string(place.file(&format!("completions/{file}"))).unwrap();
        let printed = String::from_utf8(run_to(0, name, &["completions", "bash"], &[])).unwrap();
        assert!(printed == script && script.contains("--help"), "{name}");
    }
    // The function that the script names for the program is called as bash does.
    const COMPLETE: &str = r#"
        source "$1"; shift
        f=$(complete -p kmemtrace-report | sed 's/.*-F \([^ ]*\).*/\1/')
        COMP_WORDS=(kmemtrace-report "$@"); COMP_CWORD=$#
        "$f" kmemtrace-report "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let script = place.file("completions/kmemtrace-report.bash");
    for (words, found, missing) in [
        (&["mism"][..], "mismatch", "live"),
        (&["live", "--obj"], "--objects", "--sort"),
        (&["live", "--so"], "--sort", "--objects"),
        (&["live", "--sort", "g"], "growth", "wasted"),
        (&["sites", "--by", "co"], "comm", "site"),
        (&["sites", "--by", "comm,si"], "comm,site", "comm"),
        (&["live", "--sort", "live,g"], "live,growth", "growth"),
        (&["help", "gro"], "growth", "live"),
        (&["--format", "js"], "jsonl", "table"),
    ] {
        let output = Command::new("bash").args(["-c", COMPLETE, "bash"]).arg(&script).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let replies: Vec<&str> = said.lines().collect();
        assert!(replies.contains(&found) && !replies.contains(&missing), "{words:?}: {replies:?} {output:?}");
    }
    Ok(())
}

fn each_slip_is_told_the_line_to_type() -> Result<(), Skip> {
    let place = Directory::new(&[]);
    for (name, words, said) in [
        (REPORT, "record -d 5", "kmemtraced -d 5"),
        (REPORT, "report x", "type kmemtrace-report x"),
        (REPORT, "diff a b", "type kmemtrace-report compare a b"),
        (REPORT, "leak x", "type kmemtrace-report leaks x"),
        (REPORT, "sites --by process x", "type kmemtrace-report sites --by tgid x"),
        (REPORT, "sites --by thread x", "type kmemtrace-report sites --by task x"),
        ("kmemtraced", "report x", "kmemtrace-report x"),
        ("kmemtraced", "record -d 5", "-d 5"),
        ("kmemtraced", "topp", " top?"),
        ("kmemtraced", "-d 5 topp", " top -d 5?"),
        ("kmemtraced", "recovr", " recover?"),
        ("kmemtraced", "-o - -d 1", "use -o DIR, then kmemtrace-report export DIR"),
        ("kmemtraced", "-b 0 -d 1", "a size is 16 (MiB)"),
        ("kmemtraced", "--max-size 0 -d 1", "a size is 16 (MiB)"),
        (REPORT, "summary --max-memory 0 x", "a size is 16 (MiB)"),
        (REPORT, "live --group-by comm x", "use --by KEY,..."),
        (REPORT, "live --jobs 0 x", "it is a number from 1 to 1024"),
    ] {
        let mut command = Command::new(program(name));
        let output = command.args(words.split(' ')).current_dir(place.path()).output().unwrap();
        let line = stderr(2, &output);
        // Values that cannot be read have a second paragraph of clap.
        let lines = line.lines().take_while(|line| !line.is_empty()).count();
        assert!(line.contains(said) && lines == 1, "{name} {words}: {line}");
        assert!(!line.contains("-- topp"), "no command of that name is meant: {line}");
    }
    // An option that has little in common with the typed one is no help.
    for (name, words, guess) in [
        ("kmemtraced", "--foo", None),
        (REPORT, "growth --slices 3 x", None),
        ("kmemtraced", "--durationn 3", Some("'--duration'")),
        (REPORT, "growth --siez 3 x", Some("'--size'")),
    ] {
        let output = Command::new(program(name)).args(words.split(' ')).current_dir(place.path()).output().unwrap();
        let line = stderr(2, &output);
        match guess {
            Some(guess) => assert!(line.contains(guess), "{name} {words}: {line}"),
            None => assert!(!line.contains("similar") && !line.contains("--boot"), "{name} {words}: {line}"),
        }
    }
    Ok(())
}
