//! The command line: from words to a view, its options and its inputs.
//!
//! The view is chosen by the first word that is no option, before options are parsed: they may stand on both sides of it. Each view is a
//! command of its own with its own options. A line without a view asks for the first one.

pub(crate) mod commands;
pub(crate) mod nearest;
pub(crate) mod old;
mod scan;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use kmemtrace::{Figure, Kind, SortKey};

use crate::args::{Args, Asked, Format, SortBy};
use crate::classes;
use crate::views::{MEMSTRACK, Run, VIEWS, View};
use commands::{PROGRAM, SHELLS};

/// Trace directory where none is named.
const DEFAULT_INPUT: &str = "kmemtrace.data";

/// Meaning of a command line.
pub(crate) enum CommandLine {
    /// A view of a trace.
    Request(Box<Request>),
    /// Steps of the old program's command line.
    Steps(Vec<old::Step>),
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
}

/// Parses a command line; the first of the words is the program.
pub(crate) fn parse(words: Vec<OsString>) -> Result<CommandLine, Refusal> {
    let mut words: Vec<OsString> = words.into_iter().skip(1).collect();
    let at = scan::first_word(&commands::union(), &words);
    let Some(at) = at else { return request(&VIEWS[0], false, &words) };
    let first = words[at].to_str().unwrap_or_default().to_owned();
    let view = View::named(&first);
    if view.is_some() || first == "help" || first == "completions" {
        words.remove(at);
    }
    match (first.as_str(), view) {
        (_, Some(view)) if matches!(view.run, Run::TraceAnalyze) => trace_analyze(view, &words),
        (_, Some(view)) => request(view, true, &words),
        ("help", _) => help(&words),
        ("completions", _) => completions(&words),
        _ => request(&VIEWS[0], false, &words),
    }
}

/// Parses the command line of the old program.
fn trace_analyze(view: &'static View, words: &[OsString]) -> Result<CommandLine, Refusal> {
    let line = std::iter::once(OsString::from(view.name)).chain(words.iter().cloned());
    let matches = commands::of_view(view).try_get_matches_from(line).map_err(Refusal::Clap)?;
    let args = old::OldArgs::from_arg_matches(&matches).map_err(Refusal::Clap)?;
    let has = |file: &str| Path::new(file).exists();
    Ok(CommandLine::Steps(args.steps(has("Kbuild") && (has("vmlinux") || has("System.map")))))
}

/// Parses the words beside the view's name.
fn request(view: &'static View, is_named: bool, words: &[OsString]) -> Result<CommandLine, Refusal> {
    let command = if is_named { commands::of_view(view) } else { commands::without_view() };
    let program = if is_named { format!("{PROGRAM} {}", view.name) } else { PROGRAM.to_owned() };
    let line = || std::iter::once(OsString::from(&program)).chain(words.iter().cloned());
    // The view's own command refuses options and words of others; the second one has the types of all values.
    command.try_get_matches_from(line()).map_err(|error| refusal(view, error))?;
    let matches = commands::union().try_get_matches_from(line()).map_err(Refusal::Clap)?;
    let (mut args, asked) = (Args::from_arg_matches(&matches).map_err(Refusal::Clap)?, Asked::of(&matches));
    let (mut view, mut is_named) = (view, is_named);
    if !args.memstrack.is_empty() {
        // Reports of memstrack count pages.
        args.filters.kind = vec![Kind::Pages];
        (view, is_named) = (&MEMSTRACK, true);
    }
    if let Some(class) = &args.explain {
        return Ok(CommandLine::Text(explain(class)));
    }
    let has_windows = args.before.is_some();
    if matches!(view.run, Run::Compare)
        && args.words.len() != if has_windows { 1 } else { 2 }
        && !(has_windows && args.words.is_empty())
    {
        let line = format!("{}: name two traces, or one with --before A,B --after A,B", view.name);
        return Err(Refusal::Line(line));
    }
    Ok(CommandLine::Request(Box::new(Request { view, args, asked, is_named })))
}

/// Views that a refusal names at most.
const FEW_VIEWS: usize = 6;

/// Refusal of an option that other views have, by the names of these and of the options that this view has; else the parser's own.
fn refusal(view: &'static View, error: clap::Error) -> Refusal {
    let name = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) if error.kind() == ErrorKind::UnknownArgument => name.clone(),
        _ => return Refusal::Clap(error),
    };
    let union = commands::union();
    let is_meant = |arg: &&clap::Arg| {
        let short = arg.get_short().map(|short| format!("-{short}"));
        arg.get_long().is_some_and(|long| name == format!("--{long}")) || short.is_some_and(|short| name == short)
    };
    let Some(long) = union.get_arguments().find(is_meant).and_then(clap::Arg::get_long) else {
        return Refusal::Clap(error);
    };
    if long == commands::WITHOUT_VIEW {
        return Refusal::Line(format!("--{long}: stands in place of a view: leave out {}", view.name));
    }
    let others: Vec<&str> =
        VIEWS.iter().filter(|other| other.options.contains(&long)).map(|other| other.name).collect();
    // Views that list a common option themselves are not the only ones that have it.
    let is_common = commands::of_view(&VIEWS[0]).get_arguments().any(|arg| arg.get_long() == Some(long));
    let others = match &others[..] {
        _ if is_common => String::new(),
        [one] => format!(" ({one} has it)"),
        few if few.len() <= FEW_VIEWS => format!(" ({} have it)", few.join(", ")),
        _ => String::new(),
    };
    let own: Vec<String> = view.options.iter().map(|option| format!("--{option}")).collect();
    Refusal::Line(format!(
        "{view} has no --{long}{others}; it has {own}, and the options of every view: see {PROGRAM} help {view}",
        view = view.name,
        own = own.join(", ")
    ))
}

/// `help`, `help VIEW`: the long help.
fn help(words: &[OsString]) -> Result<CommandLine, Refusal> {
    let command = match words.first() {
        None => commands::without_view(),
        Some(word) => match View::named(scan::text(word)) {
            Some(view) => commands::of_view(view),
            None => return Err(Refusal::Line(format!("help: {}", no_view(word)))),
        },
    };
    let name = command.get_name().to_owned();
    match command.try_get_matches_from([name, "--help".to_owned()]) {
        Err(help) => Err(Refusal::Clap(help)),
        Ok(_) => Err(Refusal::Line("help: there is none".to_owned())),
    }
}

fn completions(words: &[OsString]) -> Result<CommandLine, Refusal> {
    let shell = words.first().map(|word| scan::text(word)).unwrap_or_default();
    let Some(shell) = SHELLS.contains(&shell).then(|| shell.parse::<clap_complete::Shell>().ok()).flatten() else {
        return Err(Refusal::Line(format!("completions: name a shell: {}", SHELLS.join(", "))));
    };
    Ok(CommandLine::Text(commands::script(shell, commands::tree(), PROGRAM)))
}

/// Words for a class of findings.
fn explain(name: &str) -> String {
    let class = classes::all().find(|class| class.name == name);
    class.map_or(String::new(), |class| {
        let meaning = classes::wrapped(&format!("{}: {}", class.name, class.meaning));
        format!("{meaning}\n{}", classes::wrapped(class.reason))
    })
}

/// `WORD is no view (all their names)`, and a view of a similar name.
fn no_view(word: &OsStr) -> String {
    let names: Vec<&str> = VIEWS.iter().map(|view| view.name).collect();
    let shown = word.display();
    let like = nearest::nearest(scan::text(word), names.iter().copied());
    let like = like.first().map_or(String::new(), |name| format!("; did you mean {name}?"));
    format!("{shown}: is no view ({}){like}", names.join(", "))
}

impl Request {
    /// Paths of the trace, or of the traces.
    pub(crate) fn inputs(&self) -> Vec<PathBuf> {
        if self.args.words.is_empty() { vec![PathBuf::from(DEFAULT_INPUT)] } else { self.args.words.clone() }
    }

    /// Output format.
    pub(crate) fn format(&self) -> Format {
        self.args.format.unwrap_or(Format::Table)
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
            return Some("no trace is named, and kmemtraced has left none here".to_owned());
        };
        let is_view = |word: &&PathBuf| !word.exists() && word.to_str().is_some_and(|word| View::named(word).is_some());
        if let Some(view) = words.iter().find(is_view) {
            return Some(format!("{}: a view stands before its trace", view.display()));
        }
        let is_name = |path: &Path| path.components().count() == 1 && !path.exists();
        (!self.is_named && is_name(first)).then(|| no_view(first.as_os_str()))
    }
}
