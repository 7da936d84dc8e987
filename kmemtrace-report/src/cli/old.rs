//! The command line of trace_analyze: its options, and the lines of this program that do the same.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kmemtrace_sandbox::Mode;

use crate::args::one_of;

/// Options of trace_analyze, with their old meanings.
#[derive(Debug, Parser)]
#[command(name = "trace-analyze", infer_long_args = true)]
pub(crate) struct OldArgs {
    /// Built tree [default: this folder, if it is one]
    #[arg(short, long, value_name = "TREE")]
    pub(crate) kernel: Option<PathBuf>,
    /// Recording; without one only static sizes
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) file: Option<PathBuf>,
    /// Document of --save-db, in place of a recording
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) db_file: Option<PathBuf>,
    /// Save the call-sites, for --db-file
    // The other option that begins so is newer.
    #[arg(long, alias = "sa", value_name = "FILE")]
    pub(crate) save_db: Option<PathBuf>,
    /// Only this folder of the sources
    #[arg(short = 'b', long, value_name = "DIR")]
    pub(crate) start_branch: Option<String>,
    /// Write a picture: FILE.png or FILE.svg
    #[arg(short, long, value_name = "FILE")]
    pub(crate) rings_file: Option<PathBuf>,
    /// Write a page for browsers, and say where it is
    #[arg(short = 'i', long)]
    pub(crate) rings_show: bool,
    /// static, current, current_dynamic (default), total_dynamic or waste
    #[arg(
        short = 'a',
        long,
        value_name = "KEY",
        value_parser = new_word(ATTRIBUTES),
        default_value = "current_dynamic",
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub(crate) rings_attr: &'static str,
    /// Only objects of kmalloc
    #[arg(long)]
    pub(crate) malloc: bool,
    /// Only objects of caches
    #[arg(long)]
    pub(crate) cache: bool,
    /// Write an account of the callers
    #[arg(short = 'c', long, value_name = "FILE")]
    pub(crate) account_file: Option<PathBuf>,
    /// Write the callers with their object files
    #[arg(short = 'l', long, value_name = "FILE")]
    pub(crate) callers_file: Option<PathBuf>,
    /// total_dynamic, current_dynamic (default), alloc_count, free_count or waste
    #[arg(
        short = 'o',
        long,
        value_name = "KEY",
        value_parser = new_word(ORDERS),
        default_value = "current_dynamic",
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub(crate) order_by: &'static str,
    /// Sandbox around the reading of files: auto (default), strict or off
    #[arg(
        long,
        value_parser = one_of(&Mode::ALL, Mode::name),
        value_name = "MODE",
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true,
        hide_short_help = true
    )]
    pub(crate) sandbox: Mode,
}

/// Sizes that rings show, by the words of trace_analyze and of this program.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("current", "current"),
    ("static", "static"),
    ("waste", "live_wasted"),
    ("current_dynamic", "live"),
    ("total_dynamic", "total"),
];
/// Orders of the account, likewise.
const ORDERS: &[(&str, &str)] = &[
    ("total_dynamic", "total"),
    ("current_dynamic", "live"),
    ("alloc_count", "allocs"),
    ("free_count", "frees"),
    ("waste", "live_wasted"),
];

/// Parser that takes the first word of a pair for the second one.
fn new_word(words: &'static [(&str, &str)]) -> impl TypedValueParser<Value = &'static str> {
    let new = |old: String| words.iter().find(|(word, _)| *word == old).map_or("", |&(_, new)| new);
    PossibleValuesParser::new(words.iter().map(|&(old, _)| old)).map(new)
}

/// One thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Line of this program, without its name.
    Line(Vec<OsString>),
    /// Picture of the static sizes of a tree.
    StaticRings {
        /// The tree.
        tree: PathBuf,
        /// Folder that is the root.
        branch: Option<String>,
        /// The picture.
        output: PathBuf,
    },
    /// Sentence for the user, once the steps before it are done.
    Tell(String),
}

/// Page of `-i`.
const PAGE: &str = "trace-analyze.html";
/// Picture of a run without a recording, where none is named.
const STATIC_RINGS: &str = "rings_static.png";

impl OldArgs {
    /// Steps that do what the options ask for. `is_tree` tells whether the current folder is a built tree.
    pub(crate) fn steps(&self, is_tree: bool) -> Vec<Step> {
        let tree = self.kernel.clone().or_else(|| is_tree.then(|| PathBuf::from(".")));
        let Some(input) = self.db_file.as_ref().or(self.file.as_ref()) else { return self.static_steps(tree) };
        let mut steps = Vec::new();
        let mut line = |view: &str, words: &[&str], output: &Path, takes_branch: bool| {
            let mut line: Vec<OsString> = vec![view.into()];
            line.extend(words.iter().map(OsString::from));
            line.extend(tree.iter().flat_map(|tree| ["-k".into(), tree.clone().into_os_string()]));
            match (self.malloc, self.cache) {
                (true, false) => line.extend(["--kind", "kmalloc"].map(OsString::from)),
                (false, true) => line.extend(["--kind", "cache"].map(OsString::from)),
                // Both together were all events.
                _ => {}
            }
            if let Some(branch) = self.branch().filter(|_| takes_branch) {
                line.extend(["--branch".into(), OsString::from(branch)]);
            }
            // Files were overwritten, and so they are.
            line.extend(["--force".into(), "-o".into(), output.as_os_str().to_owned(), "--".into()]);
            line.push(input.clone().into_os_string());
            steps.push(Step::Line(line));
        };
        if let Some(output) = &self.save_db {
            line("sites", &["--format", "json"], output, false);
        }
        if let Some(output) = &self.callers_file {
            line("account", &["--style", "callers"], output, true);
        }
        if let Some(output) = &self.account_file {
            line("account", &["--sort", self.order_by], output, true);
        }
        if let Some(output) = &self.rings_file {
            line("chart", &["--shape", "rings", "--sort", self.rings_attr], &picture(output), true);
        }
        if self.rings_show {
            line("html", &[], Path::new(PAGE), true);
            steps.push(Step::Tell(format!("the page is {PAGE}: open it with a browser")));
        }
        if steps.is_empty() {
            let what = "nothing to write: name a file with -c, -l, -r or --save-db, or ask for a page with -i";
            steps.push(Step::Tell(what.to_owned()));
        }
        steps
    }

    /// Refusal of two outputs that are one file: the second would replace the first.
    pub(crate) fn one_file_twice(&self) -> Option<String> {
        // Without a recording there is one output.
        self.db_file.as_ref().or(self.file.as_ref())?;
        let outputs = [
            ("--save-db", self.save_db.clone()),
            ("-l", self.callers_file.clone()),
            ("-c", self.account_file.clone()),
            ("-r", self.rings_file.as_deref().map(picture)),
            ("-i", self.rings_show.then(|| PAGE.into())),
        ];
        let mut seen: Vec<(&str, PathBuf)> = Vec::new();
        for (option, path) in outputs {
            let Some(file) = path.as_deref().and_then(file_of) else { continue };
            if let Some((earlier, _)) = seen.iter().find(|(_, other)| *other == file) {
                return Some(format!("{earlier} and {option} write the same file, {}: name two", file.display()));
            }
            seen.push((option, file));
        }
        None
    }

    /// Steps of a run without a recording.
    fn static_steps(&self, tree: Option<PathBuf>) -> Vec<Step> {
        let without = [
            ("--save-db", self.save_db.is_some()),
            ("-l", self.callers_file.is_some()),
            ("-c", self.account_file.is_some()),
            ("-i", self.rings_show),
            ("--malloc", self.malloc),
            ("--cache", self.cache),
        ];
        let dropped: Vec<&str> = without.iter().filter(|(_, is_given)| *is_given).map(|(option, _)| *option).collect();
        let dropped = if dropped.is_empty() { String::new() } else { format!("; not done: {}", dropped.join(", ")) };
        let said = format!(
            "no recording (-f) and no document (--db-file): static sizes alone, as a picture of rings{dropped}"
        );
        let output = picture(self.rings_file.as_deref().unwrap_or(Path::new(STATIC_RINGS)));
        let picture = format!("the picture is {}", output.display());
        let rings = Step::StaticRings { tree: tree.unwrap_or_else(|| ".".into()), branch: self.branch(), output };
        vec![Step::Tell(said), rings, Step::Tell(picture)]
    }

    /// Folder without slashes at its ends.
    fn branch(&self) -> Option<String> {
        let branch = self.start_branch.as_deref()?.trim_start_matches("./").trim_matches('/');
        (!branch.is_empty()).then(|| branch.to_owned())
    }
}

/// The file that an output replaces or makes, without links; `None` for standard output and for devices.
fn file_of(output: &Path) -> Option<PathBuf> {
    if output == Path::new("-") || is_device(output) {
        return None;
    }
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = || Some(folder.canonicalize().ok()?.join(output.file_name()?));
    output.canonicalize().ok().or_else(new).or_else(|| Some(output.to_owned()))
}

fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// Picture with the ending that the old program gave to a name without one. A device keeps its name, and is refused as a picture.
fn picture(path: &Path) -> PathBuf {
    if path.extension().is_some() || is_device(path) { path.to_owned() } else { path.with_extension("png") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(line: &str) -> Vec<String> {
        let args = OldArgs::try_parse_from(std::iter::once("trace-analyze").chain(line.split_whitespace())).unwrap();
        let text = |step: &Step| match step {
            Step::Line(words) => words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "),
            Step::StaticRings { tree, branch, output } => format!("rings of {tree:?} {branch:?} {output:?}"),
            Step::Tell(_) => "say".to_owned(),
        };
        args.steps(false).iter().map(text).collect()
    }

    #[test]
    fn one_file_for_two_outputs_is_refused() {
        let said = |line: &str| {
            let args =
                OldArgs::try_parse_from(std::iter::once("trace-analyze").chain(line.split_whitespace())).unwrap();
            args.one_file_twice().unwrap_or_default()
        };
        assert!(said("-f log -c same -l ./same").starts_with("-l and -c write the same file, /"));
        assert!(said("-f log -r same --save-db same.png").starts_with("--save-db and -r write"));
        for line in ["-f log -c a -l b", "-f log -c - -l -", "-f log -c /dev/null -l /dev/null", "-c same -l same"] {
            assert_eq!(said(line), "", "{line}");
        }
    }

    #[test]
    fn old_options_keep_their_meanings() {
        assert_eq!(
            steps("-k linux -f log -c acc.txt -o waste --malloc -b drivers/base/"),
            ["account --sort live_wasted -k linux --kind kmalloc --branch drivers/base --force -o acc.txt -- log"]
        );
        assert_eq!(
            steps("--kernel=linux --file log --rings-file x --rings-attr total_dynamic --cache --malloc"),
            ["chart --shape rings --sort total -k linux --force -o x.png -- log"]
        );
        assert_eq!(
            steps("-f log --save-db db -l callers -b fs -i"),
            [
                "sites --format json --force -o db -- log",
                "account --style callers --branch fs --force -o callers -- log",
                "html --branch fs --force -o trace-analyze.html -- log",
                "say"
            ]
        );
        assert_eq!(steps("--db-file db --account acc"), ["account --sort live --force -o acc -- db"]);
        assert_eq!(steps("-k linux"), ["say", r#"rings of "linux" None "rings_static.png""#, "say"]);
        assert_eq!(steps("-b mm/ -r mm.svg"), ["say", r#"rings of "." Some("mm") "mm.svg""#, "say"]);
        assert_eq!(steps("-f log"), ["say"]);
    }
}
