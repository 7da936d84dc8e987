//! The live screen: as text over samples and over files that grow, on a terminal with tmux, and beside a recorder.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use kmemtrace_abi::text::units::bytes;
use kmemtrace_abi::trace::FIRST_PID_NAMESPACE;
use kmemtrace_tests::archive;
use kmemtrace_tests::generate::symbols::Function;
use kmemtrace_tests::generate::{Shape, trace_dir};
use kmemtrace_tests::growing::Growing;
use kmemtrace_tests::live::Tracefs;
use kmemtrace_tests::load;
use kmemtrace_tests::programs::{data, document, json, program, run, run_to, until};
use kmemtrace_tests::recorder::{Part, Recorder, can_record, instance_name, kmemtraced, sandbox};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::scenario::Scenario;
use kmemtrace_tests::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const REPORT: &str = "kmemtrace-report";

kmemtrace_tests::tests![
    the_last_screen_has_the_figures_of_reports,
    a_trace_is_played_at_its_own_times,
    a_trace_that_grows_is_followed_to_its_end,
    a_killed_recorder_leaves_the_last_screen,
    blocks_that_were_given_back_are_skipped,
    all_groupings_have_the_figures_of_views,
    rates_of_a_short_trace_are_over_all_of_it,
    keys_of_a_script_are_pressed_on_the_frame,
    nodes_of_stacks_have_peaks_of_their_own,
    a_module_that_loads_has_what_its_thread_allocates,
    a_recorder_and_its_screen_end_together,
    a_recorder_that_is_killed_leaves_the_screen_and_nothing_else,
    a_screen_that_is_killed_ends_the_recorder,
    a_recording_is_kept_whole_where_that_is_asked_for,
    a_text_of_page_owner_stands_still,
    buffers_are_shown_beside_any_recorder,
    the_screen_shows_itself_with_own_alone,
    the_recorder_of_a_screen_is_no_row_of_it,
    threads_that_have_ended_have_names,
    what_is_no_terminal_is_refused_with_the_way_out,
    a_clock_without_seconds_is_named_with_the_way_out,
    keys_work_on_a_terminal,
    loss_is_shown_without_colour,
    a_terminal_without_a_size_has_80_columns,
    the_terminal_comes_back_after_a_signal,
    memory_that_grows_tops_the_list_within_five_seconds,
];

fn text(arguments: &[&str], trace: &Path) -> String {
    String::from_utf8_lossy(&run_to(0, REPORT, arguments, &[trace])).into_owned()
}

fn the_last_screen_has_the_figures_of_reports() -> Result<(), Skip> {
    for name in ["amd64-6.1", "amd64-6.18", "s390x-6.1", "ppc64el-6.1", "i386-6.1", "amd64-6.1-lossy"] {
        let trace = data(name);
        let screen = text(&["top", "--once"], &trace);
        let totals = document(&["summary"], &trace)["total"].take();
        let figure = |member: &str| bytes(totals[member].as_u64().unwrap_or_else(|| panic!("{name}: no {member}")));
        let line = screen.lines().nth(1).unwrap_or_default();
        let live = format!("slab {} live", figure("live_allocated"));
        let peak = format!("peak {}", figure("peak_live_allocated"));
        assert!(line.contains(&live) && line.contains(&peak), "{name}: {live}, {peak}: {screen}");
        let sites = document(&["sites", "--sort", "live"], &trace);
        let first = bytes(sites["rows"][0]["live_allocated"].as_u64().unwrap_or(0)).replace("iB", "");
        let row = screen.lines().nth(5).unwrap_or_default();
        assert!(row.contains(&first) && row.contains(" >"), "{name}: {first}: {screen}");
        assert!(screen.lines().count() == 24 && screen.is_ascii(), "{name}: {screen}");
    }
    Ok(())
}

fn a_trace_is_played_at_its_own_times() -> Result<(), Skip> {
    let trace = data("amd64-6.1");
    let screens = text(&["top", "--batch", "3", "--speed", "2"], &trace);
    let times: Vec<&str> = screens.lines().filter_map(|line| line.split("PLAY ").nth(1)?.get(..9)).collect();
    assert_eq!(times, ["+00:00:02", "+00:00:04", "+00:00:06"], "{screens}");
    let from = text(&["top", "--once", "--from", "4s"], &trace);
    assert_eq!(from.lines().nth(1), screens.lines().nth(26), "the same time has the same figures");
    Ok(())
}

/// Frames of a trace that grows, up to its end; a minute of them at most.
struct Frames {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// Text up to now.
    printed: String,
}

impl Frames {
    /// Starts the program, and waits for its first frame.
    fn of(growing: &Growing) -> Frames {
        let mut top = Command::new(program(REPORT));
        top.args(["top", "--batch", "60"]).arg(growing.directory.path()).stdout(Stdio::piped());
        let mut child = top.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap_or_else(|| panic!("no output")));
        let mut frames = Frames { child, lines, printed: String::new() };
        frames.next();
        frames
    }

    /// Waits for the next frame: 24 lines, and the empty line in front of another one.
    fn next(&mut self) {
        for _ in 0..25 {
            self.lines.read_line(&mut self.printed).unwrap();
        }
    }

    /// All frames, once the program has ended.
    fn ended(mut self) -> Vec<String> {
        self.lines.read_to_string(&mut self.printed).unwrap();
        assert!(self.child.wait().unwrap().success());
        frames(self.printed.as_bytes())
    }
}

/// Time of a share of a trace.
fn share(growing: &Growing, percent: u64) -> u64 {
    let (first, last) = growing.times;
    first + (last - first) / 100 * percent
}

/// Frames of 24 lines, with an empty line between two.
fn frames(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().collect();
    lines.chunks(25).map(|lines| lines.join("\n")).collect()
}

fn a_trace_that_grows_is_followed_to_its_end() -> Result<(), Skip> {
    let mut growing = Growing::new(&data("amd64-6.1"));
    let frames = Frames::of(&growing);
    for percent in (5..100).step_by(5) {
        growing.grow_to(share(&growing, percent));
        std::thread::sleep(Duration::from_millis(100));
    }
    growing.finish();
    let directory = growing.unlock();
    let screens = frames.ended();
    drop(directory);
    assert!(screens[0].contains(" REC +"), "{screens:?}");
    let last = screens.last().map(String::as_str).unwrap_or_default();
    assert!(last.contains("ENDED") && last.contains("the recorder was stopped") && last.contains("0 lost"), "{last}");
    let whole = text(&["top", "--once"], &data("amd64-6.1"));
    assert_eq!(last.lines().nth(1), whole.lines().nth(1), "a block that was there in part was read in part");
    assert_eq!(last.lines().nth(5), whole.lines().nth(5));
    Ok(())
}

fn blocks_that_were_given_back_are_skipped() -> Result<(), Skip> {
    let mut growing = Growing::new(&data("amd64-6.1"));
    growing.grow_to(share(&growing, 95));
    growing.free_old(1);
    let mut frames = Frames::of(&growing);
    frames.next();
    growing.finish();
    frames.next();
    let directory = growing.unlock();
    let screens = frames.ended();
    drop(directory);
    let last = screens.last().map(String::as_str).unwrap_or_default();
    assert!(last.contains("SKIPPED") && last.contains("live figures are estimates"), "{last}");
    assert!(last.contains("ENDED") && last.contains("the recorder was stopped"), "{last}");
    assert!(last.contains(" >"), "rows of what is there: {last}");
    Ok(())
}

fn a_killed_recorder_leaves_the_last_screen() -> Result<(), Skip> {
    let mut growing = Growing::new(&data("amd64-6.1"));
    growing.grow_to(share(&growing, 60));
    let mut frames = Frames::of(&growing);
    frames.next();
    let directory = growing.unlock();
    let screens = frames.ended();
    let last = screens.last().map(String::as_str).unwrap_or_default();
    assert!(last.contains("ENDED") && last.contains("the recorder was killed"), "{screens:?}");
    assert!(last.contains(" >"), "rows stay: {last}");
    drop(directory);
    Ok(())
}

/// Kind, live bytes, peak and allocations of rows, in order.
fn figures(rows: &Value, members: [&str; 2]) -> Vec<(String, u64, u64, u64)> {
    let rows = rows.as_array().unwrap_or_else(|| panic!("no rows: {rows}"));
    let number = |row: &Value, member: &str| row[member].as_u64().unwrap_or_else(|| panic!("{member}: {row}"));
    let of = |row: &Value| {
        let kind = row["kind"].as_str().unwrap_or_default().to_owned();
        (kind, number(row, members[0]), number(row, members[1]), number(row, "allocs"))
    };
    let mut figures: Vec<_> = rows.iter().map(of).collect();
    figures.sort();
    figures
}

/// Rows at the end of a trace, after so many presses of `m`, as `w` saves them.
fn saved(trace: &Path, presses: usize) -> Value {
    let place = Directory::new(&[]);
    place.write("keys", format!("wait 100000s\n{}w\n", "m\n".repeat(presses)).as_bytes());
    let (keys, saved) = (place.file("keys").display().to_string(), place.path().display().to_string());
    let screen = text(&["top", "--once", "--script", &keys, "--save-in", &saved], trace);
    let file = fs::read_dir(place.path()).unwrap().flatten().map(|entry| entry.path());
    let file = file.filter(|path| path.extension().is_some_and(|suffix| suffix == "json")).last();
    let saved = json(&fs::read(file.unwrap_or_else(|| panic!("no file: {screen}"))).unwrap());
    // The members that other documents begin with.
    let whole = document(&["sites"], trace);
    assert_eq!(saved["completeness"], whole["completeness"]);
    for member in ["input", "first", "last", "cpus"] {
        assert_eq!(saved["trace"][member], whole["trace"][member], "{member}");
    }
    saved
}

/// Trees of machines whose stacks were recorded: pages that go in parts, too.
fn all_groupings_have_the_figures_of_views() -> Result<(), Skip> {
    for name in ["amd64-6.1", "i386-6.1", "s390x-6.1", "ppc64el-6.1", "arm64-6.12"] {
        let (_tree, tree) = tree_with_stacks(name);
        let views: [&[&str]; 5] = [&["sites"], &["sites", "--by", "stack"], &["modules"], &["tasks"], &["uses"]];
        for (view, presses) in views.iter().zip([0, 1, 2, 3, 5]) {
            let shown = saved(&tree, presses);
            let document = json(&run_to(0, REPORT, &[*view, &["--format", "json"]].concat(), &[&tree]));
            let found = figures(&shown["rows"], ["live_bytes", "peak_live_bytes"]);
            let expected = figures(&document["rows"], ["live_allocated", "peak_live_allocated"]);
            assert!(!expected.is_empty(), "{name}: {view:?}");
            assert_eq!(found, expected, "{name}: {view:?}");
        }
    }
    Ok(())
}

/// Sample of a tree with stacks, and its place.
fn tree_with_stacks(name: &str) -> (Directory, PathBuf) {
    let tree = Directory::new(&[]);
    let place = archive::unpack(&format!("tree-stacks-{name}"), tree.path()).unwrap();
    (tree, place)
}

/// Function and greatest number of live bytes of each node, as the screen shows them.
fn peaks_of(node: &Value, peaks: &mut BTreeSet<(String, String)>) {
    for node in node["children"].as_array().into_iter().flatten() {
        let peak = bytes(node["peak_live_allocated"].as_u64().unwrap_or_else(|| panic!("no peak: {node}")));
        peaks.insert((node["name"].as_str().unwrap_or_default().to_owned(), peak.replace("iB", "")));
        peaks_of(node, peaks);
    }
}

/// 1000 allocations of a page in 1.25 s, then a free of each fourth at once.
fn rates_of_a_short_trace_are_over_all_of_it() -> Result<(), Skip> {
    let mut machine = Scenario::new(Shape::plain(), 1).thread(100, 0);
    for page in 0..1000 {
        machine = machine.page_alloc(5_000_000_000 + page * 1_250_000, 0, page, 4096);
    }
    for page in (0..1000).step_by(4) {
        machine = machine.page_free(6_250_000_000, 0, page, 0);
    }
    let trace = Directory::new(&trace_dir(&machine.finish(), 1));
    let rates = |arguments: &[&str]| {
        let mut top = Command::new(program(REPORT));
        top.args(["top", "--once"]).args(arguments).arg(trace.path()).env("COLUMNS", "160");
        let screen = String::from_utf8_lossy(&top.output().unwrap().stdout).into_owned();
        let row = screen.lines().nth(5).unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let events = screen.lines().next().and_then(|line| line.split(" ev/s").next()?.rsplit(' ').next());
        (events.map(str::to_owned).unwrap_or_default(), row.join(" "))
    };
    let (events, row) = rates(&[]);
    assert!(events == "1000" && row.contains(" 800 200 0% "), "{events}: {row}");
    let (events, row) = rates(&["--from", "500ms"]);
    assert!(events == "802" && row.contains(" 802 0 - "), "{events}: {row}");
    Ok(())
}

/// Without a wait there is no time before the frame, at which no event had been read yet.
fn keys_of_a_script_are_pressed_on_the_frame() -> Result<(), Skip> {
    let (_tree, tree) = tree_with_stacks("amd64-6.1");
    let place = Directory::new(&[]);
    let keys = place.file("keys").display().to_string();
    let of = |script: &str, from: &[&str]| {
        place.write("keys", script.as_bytes());
        text(&[&["top", "--once", "--script", &keys], from].concat(), &tree)
    };
    let end = text(&["top", "--once"], &tree);
    assert_eq!(of("# no key\n", &[]), end);
    let stacks = of("t\n", &[]);
    assert!(stacks.contains("[stacks]") && stacks.contains(" ENDED ") && stacks.contains(">+ "), "{stacks}");
    assert_eq!(of("m\n", &[]), stacks);
    assert_eq!(of("wait 100000s\nm\n", &[]), stacks);
    for (script, from) in [("t\n", &["--from", "0s"][..]), ("wait 1ns\nm\n", &[])] {
        let screen = of(script, from);
        assert!(screen.contains(" PLAY +00:00:00"), "{screen}");
    }
    Ok(())
}

/// A sum of the peaks below a node is too much, and one at whole seconds too little.
fn nodes_of_stacks_have_peaks_of_their_own() -> Result<(), Skip> {
    for name in ["amd64-6.1", "s390x-6.1", "arm64-6.12"] {
        let (_tree, tree) = tree_with_stacks(name);
        let place = Directory::new(&[]);
        place.write("keys", b"wait 100000s\nt\nright\nl\n");
        let screen = text(&["top", "--once", "--script", &place.file("keys").display().to_string()], &tree);
        let mut expected = BTreeSet::new();
        peaks_of(&document(&["tree", "--by", "stack"], &tree)["root"], &mut expected);
        let rows = screen.lines().skip(5).take_while(|line| !line.is_empty() && !line.starts_with('-'));
        let mut inner = 0;
        for row in rows.filter(|row| row.contains("+ ") || row.contains("- ")) {
            let peak = row.get(16..25).unwrap_or_default().trim().to_owned();
            let function = row.get(27..).unwrap_or_default().trim_start_matches([' ', '+', '-', '>']);
            let function = function.trim_end_matches("pages").trim_end();
            assert!(expected.iter().any(|(name, of)| name == function && *of == peak), "{name}: {row}: {expected:?}");
            inner += 1;
        }
        assert!(inner > 2, "{name}: {screen}");
    }
    Ok(())
}

/// Threads 100 and 101 load modules; frames of functions that are no module's tell that a module is initialised.
fn a_module_that_loads_has_what_its_thread_allocates() -> Result<(), Skip> {
    const START: u64 = 0xffff_ffff_8110_0000;
    let names = [("do_init_module", None), ("helper", None), ("baz_read", Some("baz"))];
    let functions = names.iter().zip(0..).map(|((name, module), number)| {
        let start = START + number * 0x100;
        Function { start, end: start + 0x80, name: (*name).to_owned(), module: module.map(str::to_owned) }
    });
    let functions = functions.collect();
    let [init, helper, read] = [START + 8, START + 0x108, START + 0x208];
    let mut machine = Scenario::new(Shape::plain(), 2).with(|machine| machine.symbols.functions = functions);
    machine = machine.thread(100, 0).page_alloc(1_000, 0, 0, 4096).stack(1_000, 0, &[helper, init]);
    machine = machine.module_load(2_000, 0, "foo").page_alloc(3_000, 0, 2, 8192).stack(3_000, 0, &[helper, init]);
    machine = machine.page_alloc(4_000, 0, 4, 16_384).stack(4_000, 0, &[read, init]);
    machine = machine.page_alloc(5_000, 0, 8, 32_768).stack(5_000, 0, &[read, helper]);
    machine = machine.thread(101, 0).module_load(3_500, 1, "bar").page_alloc(6_000, 1, 16, 65_536);
    machine = machine.stack(6_000, 1, &[helper, init]).page_free(7_000, 1, 3, 0);
    let trace = Directory::new(&trace_dir(&machine.finish(), 1));
    let document = document(&["modules"], trace.path());
    let shown = saved(trace.path(), 2);
    let rows = |rows: &Value, name: &str, live: &str| -> BTreeSet<(String, u64)> {
        let rows = rows.as_array().unwrap_or_else(|| panic!("no rows: {rows}"));
        rows.iter()
            .map(|row| (row[name].as_str().unwrap_or("(kernel)").to_owned(), row[live].as_u64().unwrap_or(0)))
            .collect()
    };
    let expected = [("(kernel)", 4096), ("foo", 20_480), ("baz", 32_768), ("bar", 65_536)];
    let expected: BTreeSet<_> = expected.iter().map(|(name, live)| ((*name).to_owned(), *live)).collect();
    assert_eq!(rows(&document["rows"], "module", "live_allocated"), expected);
    assert_eq!(rows(&shown["rows"], "name", "live_bytes"), expected, "{shown}");
    Ok(())
}

fn what_is_no_terminal_is_refused_with_the_way_out() -> Result<(), Skip> {
    let output = run(REPORT, &["top"], &[&data("amd64-6.1")]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), error.contains("--batch N"), error.lines().count()),
        (Some(2), true, 1),
        "{error}"
    );
    Ok(())
}

fn a_clock_without_seconds_is_named_with_the_way_out() -> Result<(), Skip> {
    let machine = Scenario::new(Shape::plain(), 1).with(|machine| machine.clock = Some("counter"));
    let trace = Directory::new(&trace_dir(&machine.page_alloc(1_000, 0, 0, 4096).finish(), 1));
    let output = run(REPORT, &["top", "--once"], &[trace.path()]);
    let error = String::from_utf8_lossy(&output.stderr);
    let (names, blames) = (error.contains("(counter)") && error.contains("--clock mono"), error.contains("--time"));
    assert_eq!((output.status.code(), names, blames, error.lines().count()), (Some(2), true, false, 1), "{error}");
    Ok(())
}

/// Line of the shell that plays a sample to its end at once.
fn playing(name: &str) -> String {
    format!("{} top --speed 1000 '{}'", program(REPORT).display(), data(name).display())
}

fn loss_is_shown_without_colour() -> Result<(), Skip> {
    for size in [(80, 24), (160, 45)] {
        let terminal = Terminal::start(&format!("export NO_COLOR=1; {}", playing("amd64-6.1-lossy")), size)?;
        let screen = terminal.wait_for("ENDED");
        let line = screen.lines().next().unwrap_or_default();
        assert!(line.contains("lost 22,678 cpu0! cpu1!"), "{screen}");
        let coloured = terminal.tmux(&["capture-pane", "-p", "-e"]);
        assert!(!coloured.contains("\u{1b}[3") && !coloured.contains("\u{1b}[9"), "{coloured:?}");
    }
    Ok(())
}

/// Row of the table that is chosen.
fn chosen(screen: &str) -> Option<String> {
    screen.lines().skip(5).find(|line| line.contains(" >")).map(str::to_owned)
}

/// Presses the keys that move.
fn rows_are_chosen(terminal: &Terminal) {
    let goes_to = |keys: &[&str], row: Option<&String>| {
        let before = chosen(&terminal.screen());
        terminal.press(keys);
        let is_there = |screen: &str| {
            chosen(screen).is_some_and(|now| row.map_or(Some(&now) != before.as_ref(), |row| *row == now))
        };
        terminal.wait_until(&format!("{keys:?} goes from {before:?} to {row:?}"), is_there);
        chosen(&terminal.screen())
    };
    let end = goes_to(&["G"], None);
    let first = goes_to(&["g"], None);
    assert_ne!(first, end);
    let first = first.as_ref();
    for (there, back) in [("j", "k"), ("Down", "Up"), ("NPage", "PPage"), ("G", "g"), ("End", "Home")] {
        goes_to(&[there], None);
        goes_to(&[back], first);
    }
}

fn keys_work_on_a_terminal() -> Result<(), Skip> {
    for size in [(80, 24), (160, 45)] {
        let terminal = Terminal::start(&playing("amd64-6.1"), size)?;
        let screen = terminal.wait_for("ENDED");
        assert!(screen.contains("[sites]") && screen.contains("do_epoll_create"), "{screen}");
        assert_eq!(screen.contains("AGE50"), size.0 == 160, "{screen}");
        for (keys, shown) in [
            (&["l"][..], "sort live v"),
            (&["l"], "sort live ^"),
            (&["a"], "sort alloc/s v"),
            (&["x"], "sort xcpu v"),
            (&["P"], "sort peak v"),
            (&["W"], "sort wasted v"),
            (&["M"], "sort since mark v"),
            (&["S"], "sort since mark ^"),
            (&["+"], "sort +60s"),
            (&["n"], "sort name v"),
            (&["s"], "sort +60s v"),
            (&["]"], "window 5 min"),
            (&["[", "["], "window 10 s"),
            (&["m"], "[modules]"),
            (&["m"], "[tasks]"),
            (&["Tab"], "[caches]"),
            (&["m"], "[sites]"),
            (&["/", "site=do_*", "Enter"], "filter site=do_*"),
            (&["p"], "FROZEN"),
            (&["p"], "ENDED"),
            (&["Space"], "FROZEN"),
            (&["Space"], "ENDED"),
            (&["r"], "ENDED"),
            (&["0"], "mark +00:00:0"),
            (&["?"], "any key goes back"),
            (&["x"], "[sites]"),
            (&["h"], "any key goes back"),
            (&["x"], "[sites]"),
            (&["w"], "saved kmemtrace-top"),
            (&["Escape"], "window 10 s"),
            (&["/", "colour=1", "Enter"], "no key of a filter"),
            (&["t"], "no call stacks so far"),
        ] {
            terminal.press(keys);
            terminal.wait_for(shown);
        }
        terminal.press(&["Escape"]);
        rows_are_chosen(&terminal);
        // Without the pane of details there is one line across less.
        let lines_across = |screen: &str| screen.lines().filter(|line| line.starts_with("-----")).count();
        let shown = lines_across(&terminal.screen());
        terminal.press(&["Enter"]);
        terminal.wait_until("the pane is hidden", |screen| lines_across(screen) < shown);
        terminal.tmux(&["resize-window", "-x", "50", "-y", "20"]);
        terminal.wait_for("needs 60 columns");
        terminal.tmux(&["resize-window", "-x", "100", "-y", "20"]);
        terminal.wait_for("[sites]");
        terminal.press(&["q"]);
        terminal.wait_for("left with 0");
        let saved = fs::read_dir(terminal.directory.path()).unwrap().flatten();
        let names: Vec<_> = saved.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        assert!(
            names.iter().any(|name| name.ends_with(".txt")) && names.iter().any(|name| name.ends_with(".json")),
            "{names:?}"
        );
    }
    Ok(())
}

fn a_terminal_without_a_size_has_80_columns() -> Result<(), Skip> {
    let terminal = Terminal::start(&format!("stty rows 0 cols 0; {}", playing("amd64-6.1")), (100, 30))?;
    let screen = terminal.wait_for("q quit");
    assert_eq!(screen.lines().position(|line| line.contains("q quit")), Some(23), "{screen}");
    Ok(())
}

fn the_terminal_comes_back_after_a_signal() -> Result<(), Skip> {
    let line = format!("{} & echo $! > pid; fg", playing("amd64-6.1"));
    let terminal = Terminal::start(&format!("set -m; {line}"), (80, 24))?;
    terminal.wait_for("ENDED");
    let pid = terminal.directory.text("pid");
    Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap();
    let screen = terminal.wait_for("left with");
    assert!(!screen.contains("[sites]"), "{screen}");
    Ok(())
}

/// Limit of the time from the begin of a load to the screen that names it first.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// Memory in which files are pages.
const SHARED_MEMORY: &str = "/dev/shm";

/// Waits until something is there.
/// A command takes 64 MiB of shared memory, and alone is recorded: other programs of the machine take memory, too.
fn memory_that_grows_tops_the_list_within_five_seconds() -> Result<(), Skip> {
    can_record()?.need_event("kmem/mm_page_alloc")?;
    let is_memory = fs::read_to_string("/proc/mounts").is_ok_and(|mounts| mounts.contains("/dev/shm tmpfs"));
    if !is_memory {
        return Err(Skip(format!("{SHARED_MEMORY} is no tmpfs")));
    }
    let place = Directory::new(&[]);
    let held = format!("{SHARED_MEMORY}/kmt-top-{}", std::process::id());
    let wait_for = |name: &str| format!("until [ -e {} ]; do sleep 0.1; done", place.file(name).display());
    let (go, end) = (wait_for("go"), wait_for("end"));
    let script = format!("trap 'rm -f {held}' EXIT; {go}; head -c 67108864 /dev/zero > {held}; {end}");
    let mut recorder = kmemtraced();
    recorder.args(["-e", "page", "--stack", "--flush", "200ms", "--only-command", "-B", &instance_name(), "-o"]);
    recorder.arg(place.file("trace")).args(["--", "sh", "-c", &script]).stderr(Stdio::piped());
    let recorder = recorder.spawn().unwrap();
    until("trace", || place.file("trace/meta.out").exists());
    let mut top = Command::new(program(REPORT));
    top.args(["top", "--batch", "60", "--flush", "200ms"]).arg(place.file("trace")).stdout(Stdio::piped());
    let mut top = top.spawn().unwrap();
    let output = top.stdout.take().unwrap_or_else(|| panic!("no output"));
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    // Once a first screen is there, what was recorded before it has been read.
    let first: Vec<String> = lines.by_ref().take(25).collect();
    let begun = Instant::now();
    place.write("go", b"");
    let mut screens = vec![first.join("\n")];
    let is_named = |screen: &str| screen.lines().nth(5).is_some_and(|row| row.contains("shmem") && row.contains(" M "));
    let mut elapsed = Duration::ZERO;
    while elapsed < 2 * FIRST_ANSWER && !screens.last().is_some_and(|screen| is_named(screen)) {
        let screen: Vec<String> = lines.by_ref().take(25).collect();
        elapsed = begun.elapsed();
        screens.push(screen.join("\n"));
    }
    place.write("end", b"");
    top.kill().unwrap();
    top.wait().unwrap();
    let ended = recorder.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let last = screens.last().map(String::as_str).unwrap_or_default();
    assert!(is_named(last) && elapsed <= FIRST_ANSWER, "{elapsed:?}: {}", screens.join("\n"));
    assert!(last.contains("REC +") && last.contains("0 lost") && !last.contains("SKIPPED"), "{last}");
    Ok(())
}

/// Recorder with its screen on a terminal.
struct Both {
    terminal: Terminal,
    instance: String,
    tracefs: Tracefs,
}

impl Both {
    fn start(options: &str) -> Result<Both, Skip> {
        Both::start_with("", options)
    }

    /// With variables of the environment, as sudo sets them.
    fn start_with(variables: &str, options: &str) -> Result<Both, Skip> {
        let tracefs = can_record()?;
        let (instance, program) = (instance_name(), program("kmemtraced"));
        let line = format!("{variables} {} top -B {instance} {} {options}", program.display(), sandbox().join(" "));
        let terminal = Terminal::start(&line, (100, 24))?;
        Ok(Both { terminal, instance, tracefs })
    }

    fn process(&self, part: Part) -> Option<Pid> {
        part.of(&self.instance)
    }

    fn kill(&self, part: Part) {
        let process = self.process(part).unwrap_or_else(|| panic!("no {part:?}"));
        kill_process(process, Signal::KILL).unwrap();
    }

    fn has_instance(&self) -> bool {
        self.tracefs.path().join("instances").join(&self.instance).exists()
    }

    /// Nothing of the two is left.
    fn assert_clean(&self) {
        assert!(!self.has_instance());
        assert_eq!([Part::First, Part::Recorder, Part::Viewer].map(|part| self.process(part)), [None; 3]);
    }
}

fn a_text_of_page_owner_stands_still() -> Result<(), Skip> {
    let packed = fs::read(data("page_owner-amd64-6.1.txt.zst")).unwrap();
    let directory = Directory::new(&[("owners".to_owned(), zstd::decode_all(&packed[..]).unwrap())]);
    let owners = directory.file("owners");
    let totals = document(&["modules"], &owners);
    let rows = totals["rows"].as_array().unwrap_or_else(|| panic!("{totals}"));
    let live = bytes(rows.iter().filter_map(|row| row["live_allocated"].as_u64()).sum());
    let once = text(&["top", "--once"], &owners);
    // Keys change what is shown, not the moment.
    let script = directory.file("script");
    fs::write(&script, "m\nm\n").unwrap();
    let script = script.display().to_string();
    let tasks = text(&["top", "--once", "--script", &script], &owners);
    for screen in [&once, &tasks] {
        assert!(screen.contains("FROZEN (a text of page_owner)"), "{screen}");
        assert!(screen.contains(&format!("pages {live} live\n")), "{live}: {screen}");
        assert!(!screen.contains("PEAK") && !screen.contains("NOW/s") && !screen.contains("frees  "), "{screen}");
    }
    assert!(once.contains("before page_owner ") && once.contains("sort live v"), "{once}");
    // The site is the one that the other views show, and no allocator of slabs.
    assert!(once.contains("shmem_alloc_inode+0x18 ") && !once.contains("slob_new_pages"), "{once}");
    let cut = directory.file("cut");
    fs::write(&cut, &fs::read(&owners).unwrap()[..20_000]).unwrap();
    let output = run(REPORT, &["top", "--once"], &[&cut]);
    let (screen, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(screen.contains("incomplete") && told.contains(": line "), "{screen}{told}");
    let line = format!("{} top '{}'", program(REPORT).display(), owners.display());
    let terminal = Terminal::start(&line, (160, 45))?;
    terminal.wait_for("FROZEN (a text of page_owner)");
    terminal.wait_for(&format!("pages {live} live"));
    terminal.press(&["t"]);
    terminal.wait_for(">+ ");
    terminal.press(&["Right"]);
    terminal.wait_for(">- ");
    terminal.press(&["q"]);
    terminal.wait_for("left with 0");
    Ok(())
}

fn buffers_are_shown_beside_any_recorder() -> Result<(), Skip> {
    can_record()?;
    let recorder = Recorder::start(&["--flush", "100ms"]);
    for cpu in load::cpus().unwrap() {
        load::cross(20_000, 100, (cpu, cpu)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    let screens = text(&["top", "--batch", "2", "--flush", "100ms"], &recorder.trace());
    assert!(screens.lines().any(|line| line.contains("buffers ") && line.contains('%')), "{screens}");
    recorder.stop_whole();
    Ok(())
}

/// The screen takes some megabytes for what it counts, and is no answer to who takes memory.
fn the_screen_shows_itself_with_own_alone() -> Result<(), Skip> {
    can_record()?.need_event("kmem/mm_page_alloc")?;
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    if namespace.as_os_str() != &*format!("pid:[{FIRST_PID_NAMESPACE}]") {
        return Err(Skip("thread ids of events are not those of this pid namespace".to_owned()));
    }
    let place = Directory::new(&[]);
    place.write("keys", b"text mm\n");
    let keys = place.file("keys").display().to_string();
    let recorder = Recorder::start_of("page", Directory::new(&[]), &instance_name(), &["--flush", "100ms"]);
    for own in [false, true] {
        let mut top = Command::new(program(REPORT));
        top.args(["top", "--batch", "4", "--flush", "100ms", "--script", &keys]).args(own.then_some("--own"));
        let top = top.arg(recorder.trace()).stdout(Stdio::piped()).spawn().unwrap();
        let itself = format!("({})", top.id());
        let last = frames(&top.wait_with_output().unwrap().stdout).pop().unwrap_or_default();
        assert!(last.contains("[tasks]"), "{last}");
        // An interrupt may allocate while the screen runs, but no megabyte.
        let holds_much = last.lines().any(|line| line.contains(&itself) && line.contains(" M "));
        assert_eq!(holds_much, own, "{itself}: {last}");
    }
    recorder.stop_whole();
    Ok(())
}

fn the_recorder_of_a_screen_is_no_row_of_it() -> Result<(), Skip> {
    let both = Both::start("-e slab")?;
    both.terminal.wait_for("REC +");
    let recorder = both.process(Part::Recorder).unwrap_or_else(|| panic!("no recorder"));
    let threads = fs::read_dir(format!("/proc/{}/task", recorder.as_raw_nonzero())).unwrap();
    let threads: Vec<String> = threads.map(|entry| entry.unwrap().file_name().display().to_string()).collect();
    both.terminal.press(&["m", "m"]);
    both.terminal.wait_for("[tasks]");
    // Its names are written, and the texts of the machine read, in the first second.
    std::thread::sleep(Duration::from_secs(3));
    let screen = both.terminal.wait_for(">");
    let own = threads.iter().filter(|thread| screen.contains(&format!("({thread})")));
    assert_eq!(own.collect::<Vec<_>>(), Vec::<&String>::new(), "{screen}");
    both.terminal.press(&["q"]);
    both.terminal.wait_for("left with 0");
    both.assert_clean();
    Ok(())
}

/// The kernel forgets the names of threads, and the recorder has them in its file within seconds, not at its end alone.
fn threads_that_have_ended_have_names() -> Result<(), Skip> {
    can_record()?;
    let place = Directory::new(&[]);
    fs::copy("/bin/cp", place.file("gone-early")).unwrap();
    let [copies, end] = ["gone-early", "end"].map(|name| place.file(name).display().to_string());
    let script = format!("{copies} {copies} {copies}-2; touch {copies}-3; until [ -e {end} ]; do sleep 0.1; done");
    let mut recorder = kmemtraced();
    recorder.args(["--only-command", "-B", &instance_name(), "-o"]).arg(place.file("trace"));
    let recorder = recorder.args(["--", "sh", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
    until("copy", || place.file("gone-early-3").exists());
    place.write("keys", b"text mm\n");
    let mut top = Command::new(program(REPORT));
    top.args(["top", "--batch", "60", "--script"]).arg(place.file("keys")).arg(place.file("trace"));
    let mut top = top.env("LINES", "60").stdout(Stdio::piped()).spawn().unwrap();
    let output = top.stdout.take().unwrap_or_else(|| panic!("no output"));
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    let lines: Vec<String> = lines.take_while(|line| !line.contains("gone-early (")).collect();
    top.kill().unwrap();
    top.wait().unwrap();
    place.write("end", b"");
    let ended = recorder.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(lines.len() < 60 * 60 && lines.iter().any(|line| line.contains("[tasks]")), "{}", lines.join("\n"));
    let running = lines.iter().filter(|line| line.contains("REC +")).count();
    assert!(running > 0 && running < 20, "no name in {running} s: {}", lines.join("\n"));
    Ok(())
}

fn a_recorder_and_its_screen_end_together() -> Result<(), Skip> {
    let both = Both::start("-e page,slab --stack")?;
    both.terminal.wait_for("REC +");
    let screen = both.terminal.wait_for(">");
    assert!(screen.contains("0 lost") && screen.contains(" stacks "), "{screen}");
    both.terminal.wait_for("buffers ");
    both.terminal.press(&["p"]);
    both.terminal.wait_for("recording goes on");
    both.terminal.press(&["p"]);
    both.terminal.wait_for("REC +");
    let viewer = both.process(Part::Viewer).unwrap_or_else(|| panic!("no screen"));
    let status = fs::read_to_string(format!("/proc/{}/status", viewer.as_raw_nonzero())).unwrap();
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    let user = line("Uid:").split_whitespace().nth(1).map(|id| id.parse::<u32>().unwrap());
    assert!(user.is_some_and(|user| (61_184..=65_519).contains(&user)), "{status}");
    for set in ["CapPrm:", "CapEff:", "CapBnd:", "CapInh:"] {
        assert!(line(set).ends_with("0000000000000000"), "{status}");
    }
    assert!(line("NoNewPrivs:").ends_with('1') && line("Seccomp:").ends_with('2'), "{status}");
    assert_eq!(line("Groups:").split_whitespace().count(), 1, "{status}");
    both.terminal.press(&["t"]);
    both.terminal.wait_for(">+ ");
    both.terminal.press(&["Right"]);
    both.terminal.wait_for(">- ");
    both.terminal.press(&["Left"]);
    both.terminal.wait_for(">+ ");
    both.terminal.press(&["q"]);
    both.terminal.wait_for("left with 0");
    both.assert_clean();
    Ok(())
}

fn a_recorder_that_is_killed_leaves_the_screen_and_nothing_else() -> Result<(), Skip> {
    let both = Both::start("-e slab")?;
    both.terminal.wait_for("REC +");
    // A row: events have come.
    both.terminal.wait_for(">");
    both.kill(Part::Recorder);
    let screen = both.terminal.wait_for("the recorder was killed");
    assert!(screen.contains("ENDED") && screen.contains(">"), "{screen}");
    both.terminal.press(&["m"]);
    both.terminal.wait_for("[modules]");
    both.terminal.press(&["q"]);
    both.terminal.wait_for("left with 3");
    both.assert_clean();
    Ok(())
}

fn a_screen_that_is_killed_ends_the_recorder() -> Result<(), Skip> {
    let both = Both::start("-e slab")?;
    both.terminal.wait_for("REC +");
    both.kill(Part::Viewer);
    let screen = both.terminal.wait_for("left with 3");
    assert!(screen.contains("the screen was killed by signal 9"), "{screen}");
    both.assert_clean();
    Ok(())
}

fn a_recording_is_kept_whole_where_that_is_asked_for() -> Result<(), Skip> {
    use std::os::unix::fs::MetadataExt;
    for (variables, user) in [("", 0), ("SUDO_UID=64242 SUDO_GID=64242", 64_242)] {
        let both = Both::start_with(variables, "--keep kept -- sh -c 'echo said; sleep 2'")?;
        both.terminal.wait_for("the recorder was stopped");
        both.terminal.press(&["q"]);
        let screen = both.terminal.wait_for("left with 0");
        assert!(screen.contains("said") && screen.contains("0 lost"), "{screen}");
        let kept = both.terminal.directory.file("kept");
        run_to(0, "kmemtrace-check", &[], &[&kept]);
        let [dir, file] = [kept.clone(), kept.join("meta.out")].map(|path| fs::metadata(path).unwrap());
        assert_eq!((dir.uid(), dir.mode() & 0o777, file.uid()), (user, 0o700, user));
        both.assert_clean();
    }
    Ok(())
}
