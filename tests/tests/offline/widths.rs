//! Widths of tables: every view of every sample, and of a trace with long names, fits 80, 120 and 200 columns; no call-site is
//! missing, and no figure is cut.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use kmemtrace_tests::corpus::{self, Origin};
use kmemtrace_tests::generate::{Shape, tree};
use kmemtrace_tests::programs::{program, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runs;
use kmemtrace_tests::scenario::Scenario;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use unicode_width::UnicodeWidthStr;

const WIDTHS: [usize; 3] = [80, 120, 200];
/// Views with options, and the number of call-site columns of their last table; `events` is written as it comes.
const VIEWS: &[(&[&str], usize)] = &[
    (&["summary"], 1),
    (&["sites"], 1),
    (&["sites", "--sort", "peak", "--bytes", "--top", "3"], 1),
    (&["caches"], 1),
    (&["caches", "--sort", "live"], 1),
    (&["mismatch"], 2),
    (&["mismatch", "--all", "--show-addresses"], 2),
    (&["live"], 1),
    (&["live", "--by", "task"], 1),
    (&["live", "--objects", "--show-addresses", "--top", "30"], 1),
    (&["sites", "--by", "comm,site"], 2),
    (&["sites", "--by", "gfp"], 1),
    (&["caches", "--sort", "wasted", "--top", "5"], 1),
    (&["growth"], 1),
    (&["growth", "--by", "comm"], 1),
    (&["live", "--by", "comm,site"], 2),
    (&["live", "--by", "module,site", "--sort", "growth"], 2),
    (&["cross"], 1),
    (&["compare", "--before", "0%,50%", "--after", "50%,100%"], 1),
    (&["compare", "--by", "cache", "--before", ",50%", "--after", "50%,"], 1),
    (&["events", "--format", "table", "--show-addresses", "--top", "30"], 1),
];
const SITE: u64 = 0xffff_ffff_8100_0000;

/// Name of about 60 columns that ends with `number`.
fn long(number: u64, letter: &str) -> String {
    let middle = letter.repeat(53 / letter.width());
    format!("n{number:03}{middle}{number:03}")
}

/// Captured tree whose symbols, modules, commands and caches have long names, with findings of every severity and great figures.
fn long_names() -> Directory {
    let mut machine = Scenario::new(Shape::plain(), 2);
    let object = |number: u64| 0xffff_8880_0000_1000 + number * 0x1000;
    let [mut kallsyms, mut comms] = [String::new(), String::new()];
    for number in 0..12 {
        let (at, site) = (1000 + number * 1_000_000_000, SITE + 0x1001 + number * 0x1000);
        let letter = if number % 3 == 0 { "日" } else { "a" };
        let [cache, other] = [long(number, letter), long(number + 500, letter)];
        let bytes = 1 << (number * 4);
        machine = machine
            .thread(100 + number as i32, 0)
            .cache_alloc(at, 0, site, object(number), (bytes, bytes + number), &cache)
            .cache_alloc(at + 1, 0, site, object(number) + 64, (bytes, bytes), &cache)
            .kmalloc(at + 2, 0, site, object(number) + 128, (bytes, bytes))
            .cache_free(at + 3, 1, site + 0x10, object(number), &other)
            .cache_free(at + 4, 1, site + 0x10, object(number) + 128, &other);
        if number == 5 {
            machine = machine.lost(0, at + 500_000_000, 3);
        }
        // Longer than those of any module of the kernel.
        let module = if number % 2 == 0 { format!("\t[{}]", "m".repeat(48)) } else { String::new() };
        let symbol = long(number, letter);
        kallsyms += &format!("{:x} t {symbol}{module}\n", site - 1);
        comms += &format!("{} {}\n", 100 + number, long(number, letter));
    }
    let last = 20_000_000_000;
    machine = machine.page_alloc(last, 0, 0x7_0000, 4096 << 16).kmalloc(
        last + 1,
        0,
        0,
        object(99),
        (u64::MAX >> 2, u64::MAX >> 1),
    );
    let dir = Directory::new(&tree(&machine.finish(), 1));
    dir.write("kallsyms", kallsyms.as_bytes());
    dir.write("modules", b"");
    dir.write("saved_cmdlines", comms.as_bytes());
    dir
}

fn printed(view: &[&str], more: &[&str], trace: &Path) -> String {
    let mut arguments = view.to_vec();
    arguments.extend(more);
    String::from_utf8(run_to(0, "kmemtrace-report", &arguments, &[trace])).unwrap()
}

/// Cells of the rows of all tables: lines below a heading that ends with a column of names.
fn rows(text: &str) -> Vec<Vec<String>> {
    let is_block = |c: char| ('▁'..='█').contains(&c);
    let mut rows = Vec::new();
    let mut is_row = false;
    for line in text.lines() {
        if ["CALL SITE", "CACHE", "FREED BY", "COMM", "GFP", "FUNCTION"].iter().any(|title| line.ends_with(title)) {
            is_row = true;
        } else if line.is_empty() || line.starts_with('(') {
            is_row = false;
        } else if is_row && !line.contains("gap on CPU") {
            // Lines of blocks are shorter on a narrow screen.
            let line = line.replace(is_block, " ");
            rows.push(line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect());
        }
    }
    rows
}

/// True if `shown` is `whole`, or what is left of it without its middle: a call-site keeps its offset, and its module where
/// `keeps_module`.
fn is_cut_of(shown: &str, whole: &str, keeps_module: bool) -> bool {
    if !shown.contains('…') {
        return shown == whole;
    }
    let pieces: Vec<&str> = shown.split('…').collect();
    let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
    let tail = whole.rfind("+0x").map_or("", |at| &whole[at..]);
    let kept = if keeps_module { tail } else { tail.split('[').next().unwrap_or_default() };
    let is_kept = if keeps_module { shown.ends_with(kept) } else { shown.contains(kept) };
    whole.starts_with(first) && whole.ends_with(last) && is_kept
}

/// Checks that a screen of `width` columns shows the rows of `whole`, which has no limit.
fn assert_fits(what: &str, narrow: &str, whole: &str, width: usize, sites: usize) {
    for line in narrow.lines() {
        assert!(line.width() <= width, "{what}: {} columns: {line}", line.width());
    }
    let (shown, expected) = (rows(narrow), rows(whole));
    // The columns of events are as wide as they are before the first name is read.
    let keeps_module = !what.contains("events");
    assert_eq!(shown.len(), expected.len(), "{what}: rows\n{narrow}");
    for (shown, expected) in shown.iter().zip(&expected) {
        for (number, cell) in shown.iter().rev().enumerate() {
            let is_site = number < sites;
            let whole = |cells: &String| is_cut_of(cell, cells, keeps_module);
            let found =
                if is_site { expected.iter().rev().nth(number).is_some_and(whole) } else { expected.iter().any(whole) };
            assert!(found, "{what}: {cell}\n{shown:?}\n{expected:?}");
            let is_figure = cell.trim_start_matches(['<', '=', '+', '-']).starts_with(|c: char| c.is_ascii_digit());
            assert!(!is_figure || !cell.contains('…'), "{what}: {cell} is cut");
        }
    }
}

/// Checks each view of a trace at some of the widths.
fn assert_views(name: &str, trace: &Path, widths: impl Fn(usize) -> Vec<usize>) {
    for (number, &(view, sites)) in VIEWS.iter().enumerate() {
        let whole = printed(view, &[], trace);
        for width in widths(number) {
            let what = format!("{name} {view:?} {width}");
            let narrow = printed(view, &["--width", &width.to_string()], trace);
            assert_fits(&what, &narrow, &whole, width, sites);
        }
    }
}

#[test]
fn every_view_of_every_sample_fits() {
    let dir = Directory::on_disk();
    let cases = corpus::write(dir.path(), 2).unwrap();
    let samples = cases.iter().filter(|case| case.origin != Origin::Large);
    for (sample, case) in samples.enumerate().step_by(runs::step(2)) {
        // Each view has each width with every third sample.
        assert_views(&case.name, &dir.file(&case.name), |view| vec![WIDTHS[(sample + view) % WIDTHS.len()]]);
    }
}

#[test]
fn long_names_and_great_figures_fit() {
    let dir = long_names();
    assert_views("long names", dir.path(), |_| WIDTHS.to_vec());
    let whole = printed(&["sites"], &[], dir.path());
    assert!(rows(&whole).len() >= 24, "{whole}");
    let mismatch = printed(&["mismatch"], &["--width", "80"], dir.path());
    let [errors, suspects] = ["Errors", "Suspect"].map(|title| mismatch.find(title).unwrap());
    assert!(errors < suspects, "errors come first: {mismatch}");
    assert!(
        whole.contains("(page events: no call-site)") && whole.contains("(no call-site)") && !whole.contains(" 0x0"),
        "{whole}"
    );
}

/// Text on a terminal of `columns`, with no column where it is 0.
fn on_terminal(columns: u16, variables: &[(&str, &str)], arguments: &[&str], trace: &Path) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&slave, size).unwrap();
    let mut command = Command::new(program("kmemtrace-report"));
    for name in ["COLUMNS", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.envs([("TERM", "xterm"), ("LC_ALL", "C.UTF-8"), ("KMEMTRACE_PAGER", "")]).envs(variables.iter().copied());
    command.args(arguments).arg(trace).stdout(slave).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // The slave is closed here, so that the child's end is the end of the text.
    drop(command);
    let mut text = Vec::new();
    let mut master = File::from(master);
    let mut buffer = [0; 4096];
    // The end of a terminal is an error of the master.
    while let Ok(n @ 1..) = master.read(&mut buffer) {
        text.extend_from_slice(&buffer[..n]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(text).unwrap().replace("\r\n", "\n")
}

#[test]
fn a_terminal_has_the_table_of_its_width_and_colours_only_there() {
    let dir = long_names();
    let trace = dir.path();
    // A terminal has as many rows as fit, where no number is asked for.
    let view = ["sites", "--color", "never", "--top", "20"];
    for (columns, variables, width) in
        [(80, &[][..], "80"), (120, &[][..], "120"), (0, &[][..], "80"), (200, &[("COLUMNS", "100")][..], "100")]
    {
        let piped = printed(&["sites", "--top", "20"], &["--width", width], trace);
        assert_eq!(on_terminal(columns, variables, &view, trace), piped, "{columns} {variables:?}");
    }
    let coloured = on_terminal(80, &[], &["summary"], trace);
    assert!(coloured.starts_with("\x1b[1m\x1b[33mLOSSY\x1b[0m"), "{coloured}");
    assert!(coloured.contains('█'), "shares have bars: {coloured}");
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = on_terminal(80, &[(name, value)], &["summary"], trace);
        assert!(!plain.contains('\x1b') && plain.starts_with("LOSSY"), "{name}: {plain}");
    }
    let ascii = on_terminal(80, &[("LC_ALL", "C")], &["summary", "--color", "never"], trace);
    assert!(ascii.contains('#') && !ascii.contains(['█', '…']), "{ascii}");
    for view in ["summary", "mismatch", "live"] {
        assert!(!printed(&[view], &[], trace).contains('\x1b'), "{view}: a pipe has no colours");
        assert!(printed(&[view], &["--color", "always"], trace).contains('\x1b'), "{view}");
    }
}

#[test]
fn events_are_a_table_on_a_terminal_and_lines_in_a_pipe() {
    let dir = long_names();
    let table = on_terminal(80, &[], &["events", "--top", "2", "--color", "never"], dir.path());
    assert!(table.lines().next().is_some_and(|line| line.ends_with("CALL SITE")), "{table}");
    let piped = printed(&["events"], &[], dir.path());
    assert!(piped.starts_with("{\"at\":"), "{piped}");
    let lines = printed(&["events", "--top", "2"], &[], dir.path());
    assert_eq!(lines.lines().collect::<Vec<_>>(), piped.lines().take(2).collect::<Vec<_>>());
    let rows = printed(&["events", "--format", "csv"], &[], dir.path());
    assert_eq!(rows.lines().count(), piped.lines().count() + 1, "a row for each event and gap below the heading");
    assert!(rows.lines().any(|row| row.contains(",gap,") && row.ends_with(",3")), "{rows}");
}

#[test]
fn what_was_asked_for_stands_above_and_explains_an_empty_table() {
    let dir = long_names();
    let asked = ["--comm", "nosuch,x*", "--kind", "kmalloc", "--time", "+1s,"];
    for view in ["summary", "sites", "caches", "mismatch", "live", "cross", "growth"] {
        let text = printed(&[view], &asked, dir.path());
        assert!(text.contains("\nfilter comm=nosuch,x* kind=kmalloc   time +1s,\n"), "{view}: {text}");
        assert!(text.contains("\nfilter comm=nosuch,x* kind=kmalloc: 0 of "), "{view}: {text}");
    }
}

/// A mark is explained where it stands, and only there.
#[test]
fn a_bound_is_explained_below_the_tables_that_have_one() {
    let object = 0xffff_8880_0000_1000;
    let with = |addresses: [u64; 2]| {
        let [first, second] = addresses;
        let machine = Scenario::new(Shape::plain(), 1)
            .kmalloc(10, 0, SITE, first, (60, 64))
            .kmalloc(20, 0, SITE, second, (60, 64))
            .kfree(30, 0, SITE, 0);
        Directory::new(&tree(&machine.finish(), 1))
    };
    for (dir, has_bound) in [(with([object, object]), true), (with([object, object + 64]), false)] {
        for view in ["summary", "sites", "caches", "live"] {
            let text = printed(&[view], &[], dir.path());
            let mark = text.matches("<=").count();
            let explained = text.contains("\n<= marks");
            assert_eq!((mark > 1, explained), (has_bound, has_bound), "{view}: {text}");
        }
    }
}
