//! Commands of clap, made of the table of views: the program, and a subcommand for each view.
//!
//! Every view parses the options of all views, so that one type has their values, and hides those that it does not take. Help,
//! completions and man pages are made of these commands.

use std::fmt::Write as _;

use clap::builder::{PossibleValue, PossibleValuesParser, StyledStr, TypedValueParser};
use clap::{Arg, Args as _, Command, CommandFactory};
use clap_complete::Shell;

use kmemtrace::SortKey;

use super::old::OldArgs;
use crate::args::{Args, SortBy, Word};
use crate::classes;
use crate::columns::column::Holds;
use crate::views::{Run, VIEWS, View};

/// Name of the program.
pub(crate) const PROGRAM: &str = "kmemtrace-report";
/// Option that stands in place of a view.
pub(super) const WITHOUT_VIEW: &str = "memstrack";
/// Meaning of the program in one line.
const ABOUT: &str = "Reports who leaks kernel memory, what is wasted, which frees do not match";
/// Width of help: a terminal of 80 columns shows it whole.
const WIDTH: usize = 80;
/// Shells with completions.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
const EXIT_STATUS: &str = "\
Exit status:
  0  printed, whatever the verdict on the trace
  1  a gate fired: --fail-on, --fail-over
  2  usage, unreadable input, or more memory than --max-memory
  3  no trace at all; or --strict, and the trace is not complete";

/// True if the view, or the program where the view is not named, has the option.
pub(super) fn has(view: &View, is_named: bool, arg: &Arg) -> bool {
    view.takes(arg) || (!is_named && arg.get_long() == Some(WITHOUT_VIEW))
}

/// The program: options of the first view, and each view as a subcommand.
pub(crate) fn program() -> Command {
    let view = &VIEWS[0];
    let completions = Command::new("completions").about("Prints completions for a shell").arg(
        Arg::new("shell")
            .required(true)
            .value_name("SHELL")
            .value_parser(PossibleValuesParser::new(SHELLS).try_map(|shell| shell.parse::<Shell>())),
    );
    with_options(Command::new(PROGRAM), view, false)
        .about(ABOUT)
        .version(env!("CARGO_PKG_VERSION"))
        .max_term_width(WIDTH)
        .override_usage(format!("{PROGRAM} [VIEW] [OPTIONS] [DIR|FILE]..."))
        .args_conflicts_with_subcommands(true)
        .subcommand_help_heading("Views (without VIEW: summary, without DIR: ./kmemtrace.data)")
        .after_help(format!("{}Help of a view, with all its options: {PROGRAM} help VIEW", filters_line(view)))
        .after_long_help(long_end(view))
        .subcommands(VIEWS.iter().map(|view| named(view).defer(described)))
        .subcommand(completions)
}

/// Command of a view.
pub(crate) fn of_view(view: &'static View) -> Command {
    described(named(view))
}

/// Command of a view without options.
fn named(view: &'static View) -> Command {
    let command = Command::new(view.name).about(view.meaning).aliases(view.alias());
    command.disable_version_flag(true).max_term_width(WIDTH)
}

/// The command of a view with options and help; apart from the name, because a run needs one view of all.
fn described(command: Command) -> Command {
    let Some(view) = View::named(command.get_name()) else { return command };
    let inputs = match view.run {
        Run::Compare => "A [B]",
        Run::Static => "TREE|VMLINUX",
        Run::TraceAnalyze => "",
        Run::Names => "-o FILE VMLINUX [DIR]",
        Run::Chart => "-o FILE.svg|FILE.png [DIR|FILE]...",
        _ => "[DIR|FILE]...",
    };
    let mut short = filters_line(view);
    if let Some((line, _)) = view.examples.first() {
        let _ = writeln!(short, "Example: {PROGRAM} {line}");
    }
    let _ = write!(short, "All options, explained: {PROGRAM} help {}", view.name);
    let command = match view.run {
        Run::TraceAnalyze => OldArgs::augment_args(command),
        _ => with_options(command, view, true),
    };
    command
        .about(view.meaning)
        .long_about(format!("{}\n\n{}", view.meaning, view.help))
        .bin_name(format!("{PROGRAM} {}", view.name))
        .override_usage(format!("{PROGRAM} {} [OPTIONS] {inputs}", view.name).trim_end().to_owned())
        .after_help(short)
        .after_long_help(long_end(view))
}

/// The command with the options of all views; those that the view does not take are hidden, and refused once they are read.
fn with_options(command: Command, view: &'static View, is_named: bool) -> Command {
    let of_view = |arg: Arg| if has(view, is_named, &arg) { shaped(arg, view) } else { arg.hide(true) };
    Args::augment_args(command).mut_args(of_view)
}

/// The program with the options that help shows: completions have no others.
pub(crate) fn completed() -> Command {
    let shown =
        |command: Command, full: &Command| command.args(full.get_arguments().filter(|arg| !arg.is_hide_set()).cloned());
    let program = program();
    let views = VIEWS.iter().map(|view| shown(named(view), &of_view(view)));
    let others = program.get_subcommands().filter(|below| View::named(below.get_name()).is_none()).cloned();
    let command = Command::new(PROGRAM).about(ABOUT).version(env!("CARGO_PKG_VERSION"));
    shown(command, &program).subcommands(views).subcommands(others)
}

/// Option with the words that it takes in this view.
fn shaped(arg: Arg, view: &'static View) -> Arg {
    match arg.get_long() {
        Some("by") if view.name == "shrinkers" => {
            let help = "function: a row for each function that shrinkers call [default: for each shrinker and node]";
            with_words(arg, view.groupings, &["Function that shrinkers call"]).help(help).long_help(help)
        }
        Some("by") => with_words(arg, view.groupings, &[]),
        // These have no index and no stages.
        Some("verbose") if view.options.contains(&"verbose") => {
            arg.help("Print on standard error what the sandbox allows")
        }
        Some("sort") if view.name == "stalls" => {
            with_words(arg, view.sort_keys, &["Duration, the longest first", "Begin, the earliest first"])
        }
        Some("sort") if view.name == "live" => {
            const GROWTH: &str = "Column GREW: live bytes gained over about the last tenth of the recording";
            let meaning = |key: &SortBy| (*key == SortBy::Key(SortKey::Growth)).then_some(GROWTH);
            let meanings: Vec<Option<&'static str>> = view.sort_keys.iter().map(meaning).collect();
            with_meanings(arg, view.sort_keys, &meanings)
        }
        Some("sort") => {
            let of_page_owner = SortBy::of_page_owner().filter(|_| view.options.contains(&"cull"));
            with_words(arg, &view.sort_keys.iter().copied().chain(of_page_owner).collect::<Vec<SortBy>>(), &[])
        }
        None if matches!(view.run, Run::Compare) => {
            arg.value_name("TRACE").help("Trace A and trace B; with --before and --after one trace").num_args(1..=2)
        }
        None if matches!(view.run, Run::Static) => arg
            .value_name("TREE|VMLINUX")
            .help("Built tree of a kernel, or the linked kernel")
            .num_args(1)
            .required(true),
        None if matches!(view.run, Run::Names) => {
            let help = "Kernel with debug information, and a folder with modules that have it, too";
            arg.value_name("VMLINUX [DIR]").help(help).num_args(1..=2).required(true)
        }
        Some("format") if matches!(view.run, Run::Events) => {
            arg.help("table, json, jsonl or csv [default: table on a terminal, else jsonl]")
        }
        Some("span") if view.name == "stalls" => {
            let help = "Only these stalls: direct, node, memcg, compaction";
            let rest = "With --all-spans other kinds, too: the help of latency lists them. Spans inside are listed whatever is chosen.";
            arg.help(help).long_help(format!("{help}\n\n{rest}"))
        }
        Some("span") if view.name == "waits" => {
            let help = "Only time in these kinds of spans: direct, node, compaction";
            arg.help(help).long_help(help)
        }
        Some("depth") if matches!(view.run, Run::Chart) => arg.help("Levels below the root [default: all]"),
        Some("output") if matches!(view.run, Run::Chart) => {
            arg.help("The picture: FILE.svg or FILE.png").required(true)
        }
        Some("output") if matches!(view.run, Run::Names) => arg.help("The map").required(true),
        Some("force") if matches!(view.run, Run::Static | Run::Names) => arg.help("Overwrite the output file"),
        _ => arg,
    }
}

/// Option that takes these words of its type, the first by default; `meanings` replace those of the type.
fn with_words<T: Word>(arg: Arg, words: &[T], meanings: &[&'static str]) -> Arg {
    with_meanings(arg, words, &meanings.iter().copied().map(Some).collect::<Vec<_>>())
}

/// [`with_words`], where `None` leaves a word its meaning.
fn with_meanings<T: Word>(arg: Arg, words: &[T], meanings: &[Option<&'static str>]) -> Arg {
    let mut values: Vec<PossibleValue> = words.iter().map(Word::possible).collect();
    for (value, meaning) in values.iter_mut().zip(meanings) {
        if let Some(meaning) = meaning {
            *value = value.clone().help(*meaning);
        }
    }
    let default = values.first().map_or(String::new(), |value| value.get_name().to_owned());
    let with_default = |text: Option<&StyledStr>| {
        let text = text.map(ToString::to_string).unwrap_or_default();
        format!("{text} [default: {default}]")
    };
    let (help, long) = (with_default(arg.get_help()), with_default(arg.get_long_help()));
    arg.help(help).long_help(long).value_parser(PossibleValuesParser::new(values).try_map(|word| word.parse::<T>()))
}

/// Line with the names of the filters that a view takes.
fn filters_line(view: &'static View) -> String {
    let command = Args::command();
    let is_shown = |arg: &&Arg| arg.get_help_heading() == Some("Filters") && !arg.is_hide_set() && view.takes(arg);
    let names = command.get_arguments().filter(is_shown).filter_map(Arg::get_long);
    let names: String = names.map(|long| format!(" --{long}")).collect();
    if names.is_empty() { names } else { format!("Filters:{names}\n") }
}

/// End of the long help: examples, classes, exit status.
fn long_end(view: &'static View) -> String {
    let mut text = "Examples:\n".to_owned();
    for (line, meaning) in view.examples {
        let _ = writeln!(text, "  {}\n      {meaning}", format!("{PROGRAM} {line}").trim_end());
    }
    if view.options.contains(&"class") {
        text += "\nClasses:\n";
        for class in classes::all() {
            let _ = writeln!(text, "  {}\n      {}", class.name, class.meaning);
        }
    }
    text += &columns_of(view);
    format!("{text}\n{EXIT_STATUS}")
}

/// Explanations of the columns of a view's tables.
fn columns_of(view: &'static View) -> String {
    let mut text = String::new();
    for (part, columns) in view.columns {
        let part = if part.is_empty() { String::new() } else { format!(", {part}") };
        let _ = writeln!(text, "\nColumns of the table{part}:");
        for column in *columns {
            let title = match (column.title, column.holds) {
                ("", Holds::Bar) => "(bar)",
                ("", _) => "(first column)",
                (title, _) => title,
            };
            let _ = write!(text, "  {title}\n{}", classes::indented(column.meaning, 6));
        }
    }
    text
}
