//! Commands of clap: one for each view, with the options that it has, and the program's own.
//!
//! All say what the table of views says. Help, completions and man pages are made of these.

use std::fmt::Write as _;

use clap::builder::{PossibleValue, PossibleValuesParser, StyledStr};
use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_complete::Shell;

use super::old::OldArgs;
use crate::args::{Args, Word, of_page_owner};
use crate::views::{Run, VIEWS, View};
use crate::{classes, columns};

/// Name of the program.
pub(crate) const PROGRAM: &str = "kmemtrace-report";
/// Option that stands in place of a view.
pub(super) const WITHOUT_VIEW: &str = "memstrack";
/// Meaning of the program in one line.
const ABOUT: &str = "Reports who leaks kernel memory, what is wasted, which frees do not match";
/// Width of help: a terminal of 80 columns shows it whole.
const WIDTH: usize = 80;
/// Shells with completions.
pub(crate) const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
/// Options that the short help of the program leaves to the short help of its views.
const OF_VIEWS_ONLY: [&str; 4] = ["sort", "fail-on", "explain", "output"];

const EXIT_STATUS: &str = "\
Exit status:
  0  printed, whatever the verdict on the trace
  1  a gate fired: --fail-on, --fail-over
  2  usage, unreadable input, or more memory than --max-memory
  3  no trace at all; or --strict, and the trace is not complete";

/// Command with the options of all views, to read their values with: no help comes from it.
pub(crate) fn union() -> Command {
    Args::command().disable_help_subcommand(true)
}

/// Options of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Options {
    /// Options that help shows.
    Shown,
    /// All options, with those for tests.
    All,
}

/// Command of a view.
pub(crate) fn of_view(view: &'static View) -> Command {
    view_command(view, Options::All)
}

fn view_command(view: &'static View, options: Options) -> Command {
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
    let command = with_options(view, view.name, options)
        .about(view.meaning)
        .long_about(format!("{}\n\n{}", view.meaning, view.help))
        .bin_name(format!("{PROGRAM} {}", view.name))
        .override_usage(format!("{PROGRAM} {} [OPTIONS] {inputs}", view.name).trim_end().to_owned())
        .after_help(short)
        .after_long_help(long_end(view));
    match view.alias {
        Some(alias) => command.visible_alias(alias),
        None => command,
    }
}

/// Command of a line that names no view: the first view's options, and a list of all views.
pub(crate) fn without_view() -> Command {
    program_command(Options::All)
}

fn program_command(options: Options) -> Command {
    let view = &VIEWS[0];
    let short = format!("{}Help of a view, with all its options: {PROGRAM} help VIEW", filters_line(view));
    let long = format!(
        "Other commands:\n  help [VIEW]        explains a view and its options\n  completions SHELL  prints completions for {}\n\n{}",
        SHELLS.join(", "),
        long_end(view)
    );
    with_options(view, PROGRAM, options)
        .about(ABOUT)
        .version(env!("CARGO_PKG_VERSION"))
        .mut_args(|arg| {
            let is_hidden = arg.get_long().is_some_and(|long| OF_VIEWS_ONLY.contains(&long));
            let was_hidden = arg.is_hide_short_help_set();
            arg.hide_short_help(is_hidden || was_hidden)
        })
        .override_usage(format!("{PROGRAM} [VIEW] [OPTIONS] [DIR|FILE]..."))
        .help_template("{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}")
        .before_help(short_list_of_views())
        .before_long_help(list_of_views())
        .after_help(short)
        .after_long_help(long)
}

/// Command of the program with all views below it, for completions and man pages.
pub(crate) fn tree() -> Command {
    let help = Command::new("help").about("Explains a view and its options").disable_help_flag(true).arg(
        Arg::new("view").value_name("VIEW").value_parser(PossibleValuesParser::new(VIEWS.iter().map(|view| view.name))),
    );
    let completions = Command::new("completions")
        .about("Prints completions for a shell")
        .disable_help_flag(true)
        .arg(Arg::new("shell").value_name("SHELL").required(true).value_parser(PossibleValuesParser::new(SHELLS)));
    let views = VIEWS.iter().map(|view| view_command(view, Options::Shown));
    program_command(Options::Shown).subcommands(views.chain([help, completions]))
}

/// Completions of a program for a shell.
pub(crate) fn script(shell: Shell, mut command: Command, program: &str) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, program, &mut script);
    let script = String::from_utf8_lossy(&script);
    // The script for bash names a function of a subcommand in two ways if the program's name has a hyphen (clap_complete 4.6).
    let [wrong, right] = ["__subcmd__", "__"].map(|hyphen| format!("{}__subcmd__", program.replace('-', hyphen)));
    script.replace(&wrong, &right)
}

/// Command with the options of a view, and no words about it.
fn with_options(view: &'static View, name: &'static str, options: Options) -> Command {
    if matches!(view.run, Run::TraceAnalyze) {
        return OldArgs::command().disable_help_subcommand(true).max_term_width(WIDTH);
    }
    let all = union();
    let is_own =
        |arg: &&Arg| arg.get_long().is_none_or(|long| view.takes(long) || (name == PROGRAM && long == WITHOUT_VIEW));
    let own = all.get_arguments().filter(is_own).filter(|arg| options == Options::All || !arg.is_hide_set());
    Command::new(name)
        .disable_version_flag(name != PROGRAM)
        .disable_help_subcommand(true)
        .max_term_width(WIDTH)
        .args(own.map(|arg| shaped(arg.clone(), view)))
}

/// Option with the words that it takes in this view.
fn shaped(arg: Arg, view: &'static View) -> Arg {
    match arg.get_long() {
        Some("by") if view.name == "shrinkers" => {
            let help = "function: a row for each function that shrinkers call [default: for each shrinker and node]";
            with_meanings(
                with_words(arg, view.groupings).help(help).long_help(help),
                view.groupings,
                &["Function that shrinkers call"],
            )
        }
        Some("by") => with_words(arg, view.groupings),
        Some("sort") if view.name == "stalls" => {
            let meanings = ["Duration, the longest first", "Begin, the earliest first"];
            with_meanings(with_words(arg, view.sort_keys), view.sort_keys, &meanings)
        }
        Some("sort") if view.takes("cull") => {
            let words = view.sort_keys.iter().map(Word::possible).chain(of_page_owner());
            with_values(arg, words.collect())
        }
        Some("sort") => with_words(arg, view.sort_keys),
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
        Some("depth") if matches!(view.run, Run::Chart) => arg.help("Levels below the root [default: all]"),
        Some("output") if matches!(view.run, Run::Chart) => {
            arg.help("The picture: FILE.svg or FILE.png").required(true)
        }
        Some("output") if matches!(view.run, Run::Names) => arg.help("The map").required(true),
        Some("force") if matches!(view.run, Run::Static | Run::Names) => arg.help("Overwrite the output file"),
        _ => arg,
    }
}

/// Option that takes some of its words; the first is the default.
fn with_words<T: Word>(arg: Arg, words: &[T]) -> Arg {
    with_values(arg, words.iter().map(Word::possible).collect())
}

fn with_values(arg: Arg, values: Vec<PossibleValue>) -> Arg {
    let default = values.first().map(PossibleValue::get_name).unwrap_or_default();
    let with_default = |text: Option<&StyledStr>| text.map(|text| format!("{text} [default: {default}]"));
    let (help, long) = (with_default(arg.get_help()), with_default(arg.get_long_help()));
    let mut arg = arg.action(ArgAction::Append).value_parser(PossibleValuesParser::new(values));
    if let Some(help) = help {
        arg = arg.help(help);
    }
    if let Some(long) = long {
        arg = arg.long_help(long);
    }
    arg
}

/// Option whose words, shared with other views, mean something else in this one.
fn with_meanings<T: Word>(arg: Arg, words: &[T], meanings: &[&'static str]) -> Arg {
    let values = words.iter().map(Word::possible).zip(meanings);
    let values: Vec<PossibleValue> = values.map(|(value, meaning)| value.help(*meaning)).collect();
    arg.value_parser(PossibleValuesParser::new(values))
}

/// Lines `name   meaning` of all views.
fn list_of_views() -> String {
    let mut list = VIEWS_HEADING.to_owned();
    for view in VIEWS {
        let _ = writeln!(list, "  {:<13} {}", view.name, view.meaning);
    }
    list.trim_end().to_owned()
}

/// Heading of the lists of views.
const VIEWS_HEADING: &str = "Views (without VIEW: summary, without DIR: ./kmemtrace.data):\n";

/// Lines of the views, and a line with the names of the commands that write files, so that all of it fits a terminal.
fn short_list_of_views() -> String {
    let is_view =
        |view: &&View| matches!(view.run, Run::Document { .. } | Run::Latency { .. } | Run::Events | Run::Compare);
    let mut list = VIEWS_HEADING.to_owned();
    for view in VIEWS.iter().filter(is_view) {
        let _ = writeln!(list, "  {:<9} {}", view.name, view.meaning);
    }
    let others = VIEWS.iter().filter(|view| !is_view(view)).map(|view| format!(" {}", view.name));
    list + "Files, and input that is no trace:" + &others.collect::<String>()
}

/// Line with the names of the filters that a view takes.
fn filters_line(view: &'static View) -> String {
    let command = union();
    let filters = command.get_arguments().filter(|arg| arg.get_help_heading() == Some("Filters") && !arg.is_hide_set());
    let names = filters.filter_map(Arg::get_long).filter(|long| view.takes(long)).map(|long| format!(" --{long}"));
    let names: String = names.collect();
    if names.is_empty() { names } else { format!("Filters:{names}\n") }
}

/// End of the long help: examples, classes, exit status.
fn long_end(view: &'static View) -> String {
    let mut text = "Examples:\n".to_owned();
    for (line, meaning) in view.examples {
        let _ = writeln!(text, "  {}\n      {meaning}", format!("{PROGRAM} {line}").trim_end());
    }
    if view.takes("class") {
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
    let parts = columns::VIEWS.iter().filter(|(name, _)| *name == view.name).flat_map(|(_, parts)| parts.iter());
    for (part, columns) in parts {
        let part = if part.is_empty() { String::new() } else { format!(", {part}") };
        let _ = writeln!(text, "\nColumns of the table{part}:");
        for column in *columns {
            let _ = write!(text, "  {}\n{}", column.title, classes::indented(column.meaning, 6));
        }
    }
    text
}
