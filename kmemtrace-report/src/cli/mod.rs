//! The command line: from words to a view, its options and its inputs.
//!
//! Each view is a subcommand, made of the table of views. A line without one asks for the first view.

pub(crate) mod commands;
pub(crate) mod nearest;
pub(crate) mod old;
pub(crate) mod scripts;
pub(crate) mod settings;
mod slips;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use clap_complete::Shell;

use kmemtrace::{Figure, Kind, SortKey};
use kmemtrace_sandbox::Mode;

use crate::args::{Args, Asked, Format, SortBy};
use crate::classes;
use crate::views::{MEMSTRACK, Run, VIEWS, View};
use commands::PROGRAM;
use settings::Settings;

/// Trace directory where none is named.
const DEFAULT_INPUT: &str = "kmemtrace.data";

/// Recording before that one, which `kmemtraced` has renamed.
const EARLIER_INPUT: &str = "kmemtrace.data.old";
/// File that every recording of ours has.
const RECORDING: &str = "meta.out";

/// Meaning of a command line.
pub(crate) enum CommandLine {
    /// A view of a trace.
    Request(Box<Request>),
    /// Steps of the old program's command line, and the sandbox around them.
    Steps(Vec<old::Step>, Mode),
    /// Text to print: an explanation, completions.
    Text(String),
}

/// Reason for which a command line has no meaning.
pub(crate) enum Refusal {
    /// Help that was asked for, or an error of the parser.
    Clap(clap::Error),
    /// One line.
    Line(String),
}

/// View of a trace, with options.
pub(crate) struct Request {
    /// The view.
    pub(crate) view: &'static View,
    /// Options, with typed values.
    pub(crate) args: Args,
    /// Filters and window as the user gave them.
    pub(crate) asked: Asked,
    /// The command line names the view.
    is_named: bool,
    /// The first word is where a view may stand.
    has_first_word: bool,
}

/// Parses a command line; the first of the words is the program. `load` reads the user's settings, if they count.
pub(crate) fn parse(
    words: Vec<OsString>,
    load: impl FnOnce() -> Result<Settings, String>,
) -> Result<CommandLine, Refusal> {
    if let Some(line) = slips::first_word(&words) {
        return Err(Refusal::Line(line));
    }
    let matches = commands::program().try_get_matches_from(&words).map_err(|error| refusal(&words, error))?;
    let (view, is_named, of_view) = match matches.subcommand() {
        None => (&VIEWS[0], false, &matches),
        Some((name, of_view)) => match View::named(name) {
            Some(view) => (view, true, of_view),
            None => {
                let shell = of_view.get_one("shell").copied().unwrap_or(Shell::Bash);
                return Ok(CommandLine::Text(scripts::script(shell, commands::completed(), PROGRAM)));
            }
        },
    };
    if matches!(view.run, Run::TraceAnalyze) {
        return trace_analyze(of_view);
    }
    // A screen, and lines that come as spans end, are of a recorder, which has chosen the words.
    if of_view.get_flag("no_config") || of_view.get_flag("follow") || matches!(view.run, Run::Top) {
        return request(view, is_named, of_view);
    }
    let settings = load().map_err(Refusal::Line)?;
    match settings.applied(view, is_named, &words, of_view).map_err(Refusal::Line)? {
        Some(matches) => request(view, is_named, &matches),
        None => request(view, is_named, of_view),
    }
}

/// Refusal by the parser. A wrong word after `help` gets the line of a mistyped view, a key of another tool the line to type.
fn refusal(words: &[OsString], error: clap::Error) -> Refusal {
    if let Some(line) = slips::key(words, &error).or_else(|| slips::option(words, &error)) {
        return Refusal::Line(line);
    }
    // -i FILE and a word that is a view look like two inputs.
    let mut behind = words.iter().skip(1).map(|word| view_behind(word));
    if let (ErrorKind::ArgumentConflict, Some(None), Some(line)) =
        (error.kind(), behind.next(), behind.flatten().next())
    {
        return Refusal::Line(line);
    }
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::InvalidSubcommand => {
            Refusal::Line(format!("help: {}", no_view(OsStr::new(word))))
        }
        _ => Refusal::Clap(without_far_guess(error)),
    }
}

/// The error without an option that the parser takes for the mistyped one although they have little in common.
fn without_far_guess(mut error: clap::Error) -> clap::Error {
    if let (Some(ContextValue::String(given)), Some(ContextValue::String(guess))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::SuggestedArg))
        && nearest::nearest(given.trim_start_matches('-'), std::iter::once(guess.trim_start_matches('-'))).is_empty()
    {
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

/// Steps of the old program's command line.
fn trace_analyze(matches: &ArgMatches) -> Result<CommandLine, Refusal> {
    let args = old::OldArgs::from_arg_matches(matches).map_err(Refusal::Clap)?;
    if let Some(line) = args.one_file_twice() {
        return Err(Refusal::Line(line));
    }
    let has = |file: &str| Path::new(file).exists();
    let sandbox = args.sandbox;
    Ok(CommandLine::Steps(args.steps(has("Kbuild") && (has("vmlinux") || has("System.map"))), sandbox))
}

/// Request for a view with the options of `matches`.
fn request(mut view: &'static View, mut is_named: bool, matches: &ArgMatches) -> Result<CommandLine, Refusal> {
    let (mut args, asked) = (Args::from_arg_matches(matches).map_err(Refusal::Clap)?, Asked::of(matches));
    let has_first_word = !args.words.is_empty();
    args.words.append(&mut args.input);
    if let Some(line) = args.words.iter().find_map(|word| view_behind(word.as_os_str())) {
        return Err(Refusal::Line(line));
    }
    if let Some(line) = foreign_option(view, is_named, matches) {
        // The option may be one of the view whose name is mistyped.
        let mistyped = args.words.first().filter(|word| !is_named && has_first_word && is_like_view(word));
        return Err(Refusal::Line(mistyped.map_or(line, |word| no_view(word.as_os_str()))));
    }
    if !args.memstrack.is_empty() {
        // Reports of memstrack count pages.
        args.filters.kind = vec![Kind::Pages];
        (view, is_named) = (&MEMSTRACK, true);
    }
    if let Some(class) = &args.explain {
        return Ok(CommandLine::Text(explain(class)));
    }
    let has_windows = args.before.is_some();
    if is_named
        && args.words.is_empty()
        && let Some(line) = slips::trace_of_a_view_s_name(view)
    {
        return Err(Refusal::Line(line));
    }
    if matches!(view.run, Run::Compare) && !args.words.is_empty() && args.words.len() != if has_windows { 1 } else { 2 }
    {
        let line = format!("{}: name two traces, or one with --before A,B --after A,B", view.name);
        return Err(Refusal::Line(line));
    }
    if let ([first, second], false, false) = (&args.words[..], is_named, matches!(view.run, Run::Compare))
        && [first, second].iter().all(|word| word.join(RECORDING).is_file())
    {
        let line = format!(
            "{a} and {b} are two recordings; to compare them type {PROGRAM} compare {a} {b}",
            a = first.display(),
            b = second.display()
        );
        return Err(Refusal::Line(line));
    }
    Ok(CommandLine::Request(Box::new(Request { view, args, asked, is_named, has_first_word })))
}

/// Refusal of a view behind the options or the trace; `None` for a word that is no view, or a file.
fn view_behind(word: &OsStr) -> Option<String> {
    let view = word.to_str().and_then(View::named).filter(|_| !Path::new(word).exists())?.name;
    Some(format!("{view}: put the view before its options and trace: {PROGRAM} {view} ..."))
}

/// Views that a refusal names at most.
const FEW_VIEWS: usize = 6;

/// Refusal of an option that the view does not take, by the names of the views that do and of the options that it has.
fn foreign_option(view: &View, is_named: bool, matches: &ArgMatches) -> Option<String> {
    let command = Args::command();
    let is_foreign = |arg: &&clap::Arg| {
        let is_given = matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        is_given && !commands::has(view, is_named, arg)
    };
    let arg = command.get_arguments().find(is_foreign)?;
    let long = arg.get_long()?;
    if long == commands::WITHOUT_VIEW {
        return Some(format!("--{long}: takes the place of a view; leave out {}", view.name));
    }
    let others: Vec<&str> =
        VIEWS.iter().filter(|other| other.options.contains(&long)).map(|other| other.name).collect();
    let others = match &others[..] {
        // Views that list a common option themselves are not the only ones that have it.
        _ if VIEWS[0].takes(arg) => String::new(),
        [one] => format!(" ({one} has it)"),
        few if few.len() <= FEW_VIEWS => format!(" ({} have it)", few.join(", ")),
        [many @ .., _] => format!(" ({} and others have it)", many[..FEW_VIEWS / 2].join(", ")),
        [] => String::new(),
    };
    let own: Vec<String> = view.options.iter().map(|option| format!("--{option}")).collect();
    Some(format!(
        "{view} has no --{long}{others}; it has {own}, and the options of every view: see {PROGRAM} help {view}",
        view = view.name,
        own = own.join(", ")
    ))
}

/// Words for a class of findings.
fn explain(name: &str) -> String {
    let class = classes::all().find(|class| class.name == name);
    class.map_or(String::new(), |class| {
        let meaning = classes::wrapped(&format!("{}: {}", class.name, class.meaning));
        format!("{meaning}\n{}", classes::wrapped(class.reason))
    })
}

/// True for a word in the place of a view that names no file.
fn is_like_view(word: &Path) -> bool {
    word != Path::new("-") && word.components().count() == 1 && !word.exists()
}

/// `WORD is not a view`, with a view of a similar name, or where all are listed.
fn no_view(word: &OsStr) -> String {
    let shown = word.display();
    let like = nearest::nearest(word.to_str().unwrap_or_default(), VIEWS.iter().map(|view| view.name));
    match like.first() {
        Some(name) => format!("{shown} is not a view (did you mean {name}?)"),
        None => format!("{shown} is not a view ({PROGRAM} -h lists them)"),
    }
}

impl Request {
    /// Paths of the trace, or of the traces.
    pub(crate) fn inputs(&self) -> Vec<PathBuf> {
        if !self.args.words.is_empty() {
            return self.args.words.clone();
        }
        let compares_recordings = matches!(self.view.run, Run::Compare) && self.args.before.is_none();
        let earlier = compares_recordings.then(|| PathBuf::from(EARLIER_INPUT));
        earlier.into_iter().chain([PathBuf::from(DEFAULT_INPUT)]).collect()
    }

    /// Output format.
    pub(crate) fn format(&self) -> Format {
        self.args.format.unwrap_or(Format::Table)
    }

    /// Sort keys of rows of a text of one moment: those of the command line, else live bytes, and where these are not told pages, then
    /// objects.
    pub(crate) fn sort_keys_of_text(&self) -> Vec<SortKey> {
        if self.args.sort.is_empty() && self.args.cull.is_empty() {
            return [Figure::LiveAllocated, Figure::LivePages, Figure::LiveObjects].map(SortKey::Figure).into();
        }
        self.sort_keys()
    }

    /// Sort keys of rows of figures: those of the command line, else the view's own.
    pub(crate) fn sort_keys(&self) -> Vec<SortKey> {
        // page_owner_sort sorts by the number of blocks.
        let culls = !self.args.cull.is_empty();
        let own = self.view.sort_keys.first().copied().filter(|_| !culls);
        let own = own.unwrap_or(if culls { SortBy::figure(Figure::Allocs) } else { SortBy::figure(Figure::Wasted) });
        let asked = if self.args.sort.is_empty() { vec![own] } else { self.args.sort.clone() };
        asked.into_iter().filter_map(SortBy::key).collect()
    }

    /// Likely mistake on the command line, for a trace that cannot be opened.
    pub(crate) fn hint(&self) -> Option<String> {
        let words = &self.args.words;
        let Some(first) = words.first() else {
            return Some(
                "no trace is named, and kmemtraced has left none here; kmemtraced -d 10 records one".to_owned(),
            );
        };
        (!self.is_named && self.has_first_word && is_like_view(first)).then(|| no_view(first.as_os_str()))
    }
}
