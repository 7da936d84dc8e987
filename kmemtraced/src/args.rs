//! The command line.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use kmemtrace_abi::text::duration;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::glob::Glob;
use kmemtrace_abi::text::{memstrack, size};
use kmemtrace_sandbox::Mode;

use crate::choices::{Priority, StackWhen};
use crate::options_of_others;
use crate::write::compress::Compression;

/// Views of `kmemtrace-report`: a misspelled one is an error before the recording, not after it.
const VIEWS: [&str; 20] = [
    "summary",
    "leaks",
    "sites",
    "tasks",
    "modules",
    "uses",
    "caches",
    "balance",
    "failed",
    "mismatch",
    "live",
    "cross",
    "growth",
    "account",
    "events",
    "latency",
    "shrinkers",
    "stalls",
    "waits",
    "functions",
];

/// Verbs: words that may stand in place of options and COMMAND.
const VERBS: [&str; 6] = ["top", "watch", "recover", "doctor", "probe", "completions"];

/// Word of other recorders for what `kmemtrace-report` does.
const REPORT: &str = "report";
/// Word of other recorders for what this program does without a word.
const RECORD: &str = "record";

/// Kernel buffer of a CPU with `--lean`, bytes.
const LEAN_BUFFER_BYTES: u64 = 256 << 10;
/// Compression with `--lean`.
const LEAN_COMPRESSION: Compression = Compression::Zstd(1);

/// Flush interval where none is asked for.
const FLUSH: Duration = Duration::from_secs(1);

/// Exit status of a recording that could not start: usage, permission, no source, already running.
pub(crate) const NOT_STARTED: u8 = 2;

/// Records the slab and page allocation events of the running kernel until Ctrl-C, COMMAND's end or a limit.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 80,
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "SUBCOMMAND",
    subcommand_help_heading = "Subcommands",
    after_long_help = "Exit status: 0 nothing lost, 1 events were lost, 2 could not start, 3 ended early (disk full) or a report \
                  failed; with COMMAND its own, unless the recording's is 2 or 3"
)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
    #[command(flatten)]
    pub(crate) args: Args,
}

/// Options of a recording.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Trace directory [default: ./kmemtrace.data]
    ///
    /// An earlier ./kmemtrace.data is renamed to kmemtrace.data.old.
    #[arg(short, long, value_name = "DIR", value_parser = PathBufValueParser::new().try_map(trace_dir))]
    pub(crate) output: Option<PathBuf>,
    /// Kernel buffer of each CPU [default: 16M to 64M]
    ///
    /// The default is 1/16 of the available memory on all CPUs together, within these limits; on a small machine it is less: at most
    /// a quarter of memory on all CPUs together. 1 to 4095 without a unit are MiB.
    #[arg(short, long, value_name = "SIZE", value_parser = large_size)]
    pub(crate) buffer_size: Option<u64>,
    /// Allow a --buffer-size that takes more than half of the available memory on all CPUs together
    #[arg(long, requires = "buffer_size", help_heading = "Buffer and disk", hide_short_help = true)]
    pub(crate) force_buffer: bool,
    #[arg(
        short,
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help = "slab, page, percpu, vmalloc, all (these four), latency, or names of events [default: slab]"
    )]
    pub(crate) events: Option<Vec<String>>,
    /// Only matching allocations, e.g. 'bytes_req >= 4096'
    ///
    /// The kernel tests the filter, in its own words for the fields of the events. Frees stay whole.
    #[arg(long, value_name = "EXPR", conflicts_with_all = ["relay", "boot"])]
    pub(crate) filter: Option<String>,
    /// Record call stacks: alloc (with allocations), all, or a filter on allocations, such as 'order > 0' [default WHEN: alloc]
    ///
    /// A stack costs the machine a few microseconds. With alloc or a filter only those events get a stack, if this kernel can write
    /// the stacks of triggers into a tracefs instance; otherwise every event gets one.
    #[arg(
        short = 'g',
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "alloc",
        conflicts_with_all = ["relay", "boot"]
    )]
    pub(crate) stack: Option<StackWhen>,
    /// Record no call stacks with reclaim, compaction and vmalloc areas
    ///
    /// With -e latency the kernel writes one with each begin of a reclaim or compaction. With -e vmalloc it writes one with each area,
    /// whose call site nothing else gives; before Linux 5.19 the same holds for -e percpu.
    #[arg(long, conflicts_with = "stack", hide_short_help = true)]
    pub(crate) no_stack: bool,
    /// Record times of functions, by the kernel's tracer function_graph [default LIST: functions of reclaim and compaction]
    ///
    /// LIST has names or patterns of functions, with commas. Where the kernel has no such tracer in an instance (before Linux 6.12 or so),
    /// the recorder says so and records only the events.
    #[arg(long, value_name = "LIST", num_args = 0..=1, value_delimiter = ',', value_parser = function, conflicts_with_all = ["relay", "boot"])]
    pub(crate) functions: Option<Vec<String>>,
    /// Record only COMMAND and its children
    ///
    /// The recording has no events of other tasks: their frees are unseen, and live figures are upper bounds.
    #[arg(long, requires = "command", conflicts_with_all = ["relay", "boot"])]
    pub(crate) only_command: bool,
    /// Record the whole machine: the default
    #[arg(short, long, conflicts_with_all = ["only_command", "pid", "comm", "cgroup"], hide_short_help = true)]
    #[allow(dead_code, reason = "it asks for what is done without it")]
    pub(crate) all_cpus: bool,
    /// Record only these processes, and children that they start from now on
    ///
    /// A process is recorded with all its threads, and the id of another thread stands for that thread. With --comm or --cgroup a thread
    /// must match each of them. The recording has no events of other tasks: their frees are unseen, and every live figure is an upper
    /// bound. To find a leak, record the whole machine, and give the filter to the report: kmemtrace-report leaks --comm nginx.
    #[arg(short, long, value_name = "PID,...", value_delimiter = ',', value_parser = process)]
    pub(crate) pid: Vec<i32>,
    /// Record only threads of these names (* and ? allowed), and children that they start from now on
    ///
    /// Threads that get the name later are not recorded. Live figures are upper bounds, as with --pid.
    #[arg(long, value_name = "COMM,...", value_delimiter = ',')]
    pub(crate) comm: Vec<Glob>,
    /// Record only threads in this cgroup and in those below it, and children that they start
    ///
    /// PATH as in /proc/PID/cgroup, or a directory below /sys/fs/cgroup. Once a second the recorder adds threads that came into the cgroup;
    /// threads that leave it are still recorded. Live figures are upper bounds, as with --pid.
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,
    /// Define no probe events: frees by RCU and in bulk are not seen
    ///
    /// On Linux 6.9 and later the recorder defines three probe events for these frees, and removes them at the end.
    #[arg(long, conflicts_with = "relay", help_heading = "Source", hide_short_help = true)]
    pub(crate) no_probes: bool,
    /// Stop after this time
    ///
    /// A COMMAND that still runs is ended with SIGTERM, and its exit status, 143, is that of kmemtraced.
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<Duration>,
    /// Stop when the trace's files have this size, with exit status 0
    ///
    /// Events that are in the kernel's buffers by then come on top, and the names that are written at the end. 1 to 4095 without a
    /// unit are MiB.
    #[arg(long, value_name = "SIZE", value_parser = large_size)]
    pub(crate) max_size: Option<u64>,
    /// Store records in less room: auto, records, zstd, zstd:LEVEL or none
    ///
    /// records stores what is different in each record, zstd compresses all blocks besides, and auto (the default) does so while the
    /// CPU has time to spare. Bytes of records that no field covers become zeros: they hold what the kernel's buffer held before.
    /// A block that has waited for half of --flush is not compressed; -v counts these. none stores blocks as the kernel wrote them,
    /// with the bytes of no field, and older versions of kmemtrace read them.
    #[arg(long, value_name = "HOW", help_heading = "Buffer and disk", hide_short_help = true)]
    pub(crate) compress: Option<Compression>,
    /// Take little memory: 3 blocks of 64 KiB a CPU, -b 256K, --compress zstd:1, symbols at the end only
    ///
    /// For an initramfs. Other options win. A recorder that is killed leaves a recording without symbols.
    #[arg(long, help_heading = "Buffer and disk", hide_short_help = true)]
    pub(crate) lean: bool,
    /// Longest time that an event may stay in the kernel's buffer [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Buffer and disk", hide_short_help = true)]
    pub(crate) flush: Option<Duration>,
    /// Interval at which files are synced to the disk: none, flush (the --flush interval), or a time
    #[arg(long, value_name = "WHEN", default_value = "none", help_heading = "Buffer and disk", hide_short_help = true)]
    pub(crate) sync: Sync,
    /// Priority of the threads that record: fifo (SCHED_FIFO 1), nice (nice -20) or none
    ///
    /// If the kernel refuses fifo, the threads run at nice -20. COMMAND has the priority of the shell.
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        default_value = "fifo",
        hide_possible_values = true,
        help_heading = "Buffer and disk",
        hide_short_help = true
    )]
    pub(crate) priority: Priority,
    /// Trace clock [default: mono; global where the kernel has no mono]
    #[arg(long, value_name = "NAME", help_heading = "Source", hide_short_help = true)]
    pub(crate) clock: Option<String>,
    /// Record from this relay channel of the 2008 kmemtrace [default: kmemtrace in debugfs where the kernel has it, else tracefs]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["tracefs", "buffer_size", "events", "clock"], help_heading = "Source", hide_short_help = true)]
    pub(crate) relay: Option<PathBuf>,
    /// Take over the buffer that the kernel has filled since boot (trace_instance=kmemtrace,... or trace_event=), and go on
    #[arg(long, conflicts_with_all = ["relay", "clock"], help_heading = "Source", hide_short_help = true)]
    pub(crate) boot: bool,
    /// Record from tracefs, mounted here [default: found, or mounted]
    #[arg(long, value_name = "DIR", global = true, help_heading = "Source", hide_short_help = true)]
    pub(crate) tracefs: Option<PathBuf>,
    /// Print these views of the trace after the recording
    #[arg(long, value_name = "VIEWS", value_delimiter = ',', value_parser = ReportName)]
    pub(crate) report: Vec<String>,
    /// Name of the tracefs instance to record in
    #[arg(
        short = 'B',
        long,
        value_name = "NAME",
        default_value = "kmemtrace",
        global = true,
        help_heading = "Source",
        hide_short_help = true
    )]
    pub(crate) instance: String,
    /// Sandbox of the recorder's threads: auto (what the kernel has), strict (all of it) or off
    ///
    /// Each thread gives up its rights once all is set up: only control files, the recording and texts of the kernel can be opened; no
    /// network, no other programs. -v lists the folders, and what the kernel lacks. With strict, anything else ends the recorder.
    #[arg(
        long,
        value_name = "MODE",
        value_parser = PossibleValuesParser::new(Mode::ALL.map(Mode::name)).map(mode),
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true,
        hide_short_help = true
    )]
    pub(crate) sandbox: Mode,
    /// Leave the host's name out of the recording
    #[arg(long, hide_short_help = true)]
    pub(crate) no_host: bool,
    /// Overwrite the output directory
    ///
    /// An earlier recording goes once the new one has begun.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print only problems
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print the enabled events, and the figures of each CPU
    #[arg(short, long, conflicts_with = "quiet", hide_short_help = true)]
    pub(crate) verbose: bool,
    /// Record for the viewer of `top` or `watch`, whose process has started this one: descriptor 3 takes the stream of blocks, 4 has
    /// orders to stop.
    #[arg(long, hide = true)]
    pub(crate) served: bool,
    /// The viewer prints lines as they come, and ends with the stream.
    #[arg(skip)]
    pub(crate) prints_stream: bool,
    /// Command to run, after `--`; the recording ends with it
    #[arg(last = true, value_name = "COMMAND", hide_short_help = true)]
    pub(crate) command: Vec<OsString>,
    // At the end: the options behind it would stand under its heading.
    #[command(flatten)]
    pub(crate) memstrack: Memstrack,
}

impl CommandLine {
    /// Parses the process's command line; ends the process after errors. The error is a text that was asked for: help, version.
    pub(crate) fn of_process() -> Result<CommandLine, clap::Error> {
        let words: Vec<OsString> = std::env::args_os().collect();
        let hint = |error: &clap::Error| without_dashes(&words, error).or_else(|| options_of_others::hint(error));
        parsed(&words).map_err(|error| match hint(&error) {
            Some(line) => {
                let _ = writeln!(io::stderr(), "kmemtraced: {line}");
                std::process::exit(NOT_STARTED.into())
            }
            None if error.use_stderr() => without_far_guess(error).exit(),
            None => error,
        })
    }
}

/// Least likeness of an option to the mistyped one, from 0 to 1.
const LIKE: f64 = 0.8;

/// The error without an option that the parser takes for the mistyped one although they have little in common.
fn without_far_guess(mut error: clap::Error) -> clap::Error {
    if let (Some(ContextValue::String(given)), Some(ContextValue::String(guess))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::SuggestedArg))
        && strsim::jaro_winkler(given.trim_start_matches('-'), guess.trim_start_matches('-')) < LIKE
    {
        error.remove(ContextKind::SuggestedArg);
        // It has the guess, too.
        error.remove(ContextKind::Usage);
    }
    error
}

/// The program, with the options that each word takes.
pub(crate) fn program() -> Command {
    CommandLine::command().mut_subcommands(shaped_verb)
}

fn parsed(words: &[OsString]) -> Result<CommandLine, clap::Error> {
    let mut matches = program().try_get_matches_from(words)?;
    CommandLine::from_arg_matches_mut(&mut matches)
}

impl Args {
    /// Longest time that an event may stay in the kernel's buffer.
    pub(crate) fn flush(&self) -> Duration {
        self.flush.unwrap_or(FLUSH)
    }

    /// Compression of the files.
    pub(crate) fn compression(&self) -> Compression {
        self.compress.unwrap_or(if self.lean { LEAN_COMPRESSION } else { Compression::Auto })
    }

    /// Bytes of a CPU's kernel buffer; `None`: the default that depends on the machine.
    pub(crate) fn buffer_bytes(&self) -> Option<u64> {
        self.buffer_size.or(self.lean.then_some(LEAN_BUFFER_BYTES))
    }

    /// Option that chooses the tasks to record among those that run.
    pub(crate) fn task_option(&self) -> Option<&'static str> {
        let given =
            [("--pid", !self.pid.is_empty()), ("--comm", !self.comm.is_empty()), ("--cgroup", self.cgroup.is_some())];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// Name of COMMAND, for messages; empty without one.
    pub(crate) fn command_name(&self) -> String {
        self.command.first().map_or_else(String::new, |program| escape(program.as_bytes()).into_owned())
    }
}

/// Options of memstrack, which stand for others.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of memstrack")]
pub(crate) struct Memstrack {
    /// Record pages with stacks until a signal, then write the reports to the file of --output; no recording is kept
    #[arg(long, conflicts_with_all = ["relay", "boot", "force"], hide_short_help = true)]
    pub(crate) notui: bool,
    /// Percentage of each level of a report that the rows shown make up: the largest ones
    #[arg(long, value_name = "PERCENT", hide_short_help = true, value_parser = clap::value_parser!(u8).range(..=100))]
    pub(crate) throttle: Option<u8>,
    /// As --buffer-size, in MiB
    #[arg(long, value_name = "MB", conflicts_with = "buffer_size", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) buf_size: Option<u32>,
    /// perf and ftrace change nothing; pageowner is an input of the report
    #[arg(long, value_name = "NAME", value_parser = ["perf", "ftrace", "pageowner"], hide_short_help = true)]
    pub(crate) backend: Option<String>,
    /// Text for the backend pageowner
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) pageowner_file: Option<PathBuf>,
    /// File of the reports.
    #[arg(skip)]
    pub(crate) report_file: Option<PathBuf>,
}

/// True if a report is one of memstrack, with or without parameters.
pub(crate) fn is_of_memstrack(report: &str) -> bool {
    report.split(':').next().is_some_and(|name| memstrack::NAMES.contains(&name))
}

/// Parser of a name in `--report`: a view, or a report of memstrack.
#[derive(Clone)]
struct ReportName;

impl TypedValueParser for ReportName {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        let Some(report) = value.to_str().filter(|report| is_of_memstrack(report)) else {
            let words = VIEWS.into_iter().chain(memstrack::NAMES);
            return PossibleValuesParser::new(words).parse_ref(command, arg, value);
        };
        // A parameter that is none is told before the recording, not after it.
        memstrack::Report::parse(report).map(|_| report.to_owned()).map_err(|reason| {
            let line = format!("--report: {}\n", escape(reason.as_bytes()));
            clap::Error::raw(ErrorKind::ValueValidation, line).with_cmd(command)
        })
    }
}

/// Remedy where `error` is that the command line lacks `--` before the command, or has a verb behind options.
fn without_dashes(words: &[OsString], error: &clap::Error) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(word)) = error.get(kind) else { return None };
    if word.starts_with('-') {
        return None;
    }
    if words.get(1).is_some_and(|verb| verb == "top") && Path::new(word).exists() {
        let shown = as_typed(OsStr::new(word));
        return Some(format!("top records, and takes no recording; type: kmemtrace-report top {shown}"));
    }
    let dashes = OsString::from("--");
    (1..words.len()).filter(|&at| words[at] == *word.as_str()).find_map(|at| {
        let mended = [&words[..at], std::slice::from_ref(&dashes), &words[at..]].concat();
        let line = CommandLine::try_parse_from(&mended).ok()?;
        if line.args.command.len() != words.len() - at {
            return None;
        }
        let typed = |words: &[OsString]| words.iter().map(|word| as_typed(word)).collect::<Vec<_>>().join(" ");
        if VERBS.contains(&word.as_str()) {
            let first = [&words[..1], &words[at..=at], &words[1..at], &words[at + 1..]].concat();
            return Some(format!("put {word} before its options: {}", typed(&first)));
        }
        if word == REPORT {
            let line = [&[OsString::from("kmemtrace-report")], &words[at + 1..]].concat();
            return Some(format!("report: another program reads recordings: {}", typed(&line)));
        }
        if VIEWS.contains(&word.as_str()) {
            let line = [&[OsString::from("kmemtrace-report")], &words[at..]].concat();
            return Some(format!("{word}: another program reads recordings: {}", typed(&line)));
        }
        if word == RECORD {
            let line = [&words[..at], &words[at + 1..]].concat();
            return Some(format!("record: kmemtraced records without a word; type: {}", typed(&line)));
        }
        if let Some(verb) = VERBS.into_iter().find(|verb| is_alike(verb, word)) {
            let line = [&words[..1], &[OsString::from(verb)], &words[1..at], &words[at + 1..]].concat();
            return Some(format!("{word}: there is no such word; did you mean {}?", typed(&line)));
        }
        let option = if time(word).is_ok() { Some("-d") } else { is_filter(word).then_some("--filter") };
        if let Some(option) = option {
            let rest = words[1..].iter().filter(|other| option == "-d" || *other != "-f");
            let line: Vec<OsString> = rest.cloned().collect();
            let at = line.iter().position(|other| *other == *word.as_str())?;
            let line = [&words[..1], &line[..at], &[OsString::from(option)], &line[at..]].concat();
            return Some(format!("{word}: is not a command; type: {}", typed(&line)));
        }
        if words.get(at - 1).is_some_and(|before| before == "--stack") {
            return Some(format!(
                "--stack {word}: type a value after =, as --stack=all or --stack='order > 0'; or put -- before the command: {}",
                typed(&mended)
            ));
        }
        Some(format!("put -- before the command: {}", typed(&mended)))
    })
}

/// True for an expression over fields of events, as trace-cmd takes it behind `-f`.
fn is_filter(word: &str) -> bool {
    word.contains(' ') && word.contains(['<', '>', '=', '&', '~'])
}

/// True for a verb with a letter more, or of whose letters the first four are the same.
fn is_alike(verb: &str, word: &str) -> bool {
    let has_one_more = word.len() == verb.len() + 1 && word.starts_with(verb);
    has_one_more || word.get(..4).is_some_and(|start| verb.starts_with(start))
}

/// A word as a shell takes it: in quotes where it has characters that a shell would act on.
fn as_typed(word: &OsStr) -> String {
    let text = escape(word.as_bytes());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Record, and show who takes memory now: the live screen
    ///
    /// No file is made; --keep NAME keeps the recording.
    Top(Box<TopArgs>),
    /// Record, and print each task's wait for memory as it ends
    ///
    /// A line for each stall, with what was inside; at the end the shrinkers and totals. No file is made; -o DIR keeps the recording.
    Watch(Box<WatchArgs>),
    /// Undo the changes of a killed recorder in the kernel
    #[command(after_long_help = RECOVER_END)]
    Recover,
    /// Print what this machine can record, and how to get the rest
    ///
    /// Events, probes, clocks, symbols, rights, the layers of the sandbox, the cost of a stack; then a recording of two seconds in an
    /// instance of its own, as a test. The recording is removed. The old name, probe, still works.
    #[command(alias = "probe", after_long_help = DOCTOR_END)]
    Doctor {
        /// Leave out the recording of two seconds
        #[arg(long)]
        quick: bool,
    },
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

const TOP_END: &str = "\
Examples:
  kmemtraced top
      The call sites that hold slab memory, most growth first
  kmemtraced top -e page --stack
      Pages, with the callers that asked for them
  kmemtraced top --keep run -- make -j8
      The same while a command runs; the recording stays in ./run

Exit status:
  0  nothing lost
  1  events were lost
  2  could not start
  3  ended early (disk full, or the screen failed)";

const WATCH_END: &str = "\
Examples:
  kmemtraced watch
      Every wait for memory, as it ends
  kmemtraced watch --threshold 10ms
      Waits of 10 ms and longer
  kmemtraced watch -o stalls.data -d 10min
      The same for ten minutes; the recording stays in ./stalls.data
  kmemtraced watch --format jsonl -- make -j8
      JSON Lines while a command runs

Exit status:
  0  nothing lost
  1  events were lost
  2  could not start
  3  ended early; else the exit status of the report
With COMMAND it is the command's own, unless the recording's is 2 or 3.";

const RECOVER_END: &str = "\
Examples:
  kmemtraced recover
      Remove the instance and the probe events that a killed recorder left
  kmemtraced recover -B other
      The same for the instance named other

Exit status:
  0  undone, or nothing to undo
  2  could not be undone; the message says why";

const DOCTOR_END: &str = "\
Examples:
  kmemtraced doctor
      What this machine can record, and how to get the rest
  kmemtraced doctor --quick
      The same without the recording of two seconds

Exit status:
  0  this machine can record
  2  no tracefs, no permission, or the recording failed";

/// Options of a recording that `top` has no use for.
const NOT_OF_TOP: [&str; 8] =
    ["output", "force", "report", "notui", "throttle", "buf_size", "backend", "pageowner_file"];
/// Options of a recording that `watch` has no use for.
const NOT_OF_WATCH: [&str; 7] = ["report", "relay", "notui", "throttle", "buf_size", "backend", "pageowner_file"];

/// The command without these options in its help.
fn without(command: Command, options: &[&str]) -> Command {
    command.mut_args(|arg| if options.contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg })
}

/// Help of `top` has what it takes, and nothing else.
fn shaped_verb(command: Command) -> Command {
    match command.get_name() {
        "top" => without(command, &NOT_OF_TOP),
        "watch" => without(command, &NOT_OF_WATCH),
        _ => command,
    }
}

/// Options of `kmemtraced top`.
#[derive(Debug, clap::Args)]
#[command(version, after_long_help = TOP_END)]
pub(crate) struct TopArgs {
    /// Keep the whole recording in this directory
    ///
    /// Without it no file is made.
    #[arg(long, value_name = "NAME")]
    pub(crate) keep: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) recording: Args,
}

/// Options of `kmemtraced watch`.
#[derive(Debug, clap::Args)]
#[command(
    version,
    mut_arg("output", explained("Keep the recording in this directory, too; without it there is no file")),
    mut_arg("events", explained("Events to record beside those of reclaim: slab, page, percpu, vmalloc, all, or names of events")),
    mut_arg("flush", explained("Longest time that an event stays in the kernel's buffer [default: 200ms]")),
    after_long_help = WATCH_END
)]
pub(crate) struct WatchArgs {
    /// Print waits of this length and longer: 5ms, 134us
    ///
    /// Units: ns, us, ms, s, min (or m), h; a number alone is seconds.
    #[arg(long, value_name = "TIME", value_parser = threshold)]
    pub(crate) threshold: Option<String>,
    /// Print every span, not only stalls: shrinkers, compaction, kswapd
    #[arg(long)]
    pub(crate) all_spans: bool,
    /// Form of what is printed
    #[arg(long, value_name = "FORMAT", value_parser = ["table", "jsonl"])]
    pub(crate) format: Option<String>,
    #[command(flatten)]
    pub(crate) recording: Args,
}

/// Other help of an option.
fn explained(help: &'static str) -> impl Fn(Arg) -> Arg {
    move |arg| arg.help(help).long_help(help)
}

/// Checks a threshold before the recording; the report reads the same words.
fn threshold(text: &str) -> Result<String, String> {
    match duration::parse(text).map(u64::try_from) {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("a time is 5ms, 134us, 1.5s or 2min".to_owned()),
    }
}

/// Interval between two syncs of the files, from `--sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    Never,
    Flush,
    Every(Duration),
}

impl Sync {
    /// The interval; `None` for no syncs.
    pub(crate) fn resolve(self, flush: Duration) -> Option<Duration> {
        match self {
            Sync::Never => None,
            Sync::Flush => Some(flush),
            Sync::Every(time) => Some(time),
        }
    }
}

impl std::str::FromStr for Sync {
    type Err = String;

    fn from_str(text: &str) -> Result<Sync, String> {
        match text {
            "none" => Ok(Sync::Never),
            "flush" => Ok(Sync::Flush),
            _ => time(text).map(Sync::Every).map_err(|error| format!("none, flush, or a time: {error}")),
        }
    }
}

/// Takes the path of a trace directory. A recording is several files, which no pipe can hold.
fn trace_dir(path: PathBuf) -> Result<PathBuf, &'static str> {
    if path.as_os_str() == "-" {
        return Err("a recording is a directory of several files: use -o DIR, then kmemtrace-report export DIR");
    }
    Ok(path)
}

/// The mode of this name, which is one of them.
fn mode(name: String) -> Mode {
    Mode::ALL.into_iter().find(|mode| mode.name() == name).unwrap_or_default()
}

/// Parses a size that nobody means in single bytes.
fn large_size(text: &str) -> Result<u64, String> {
    size::parse_large(text).ok_or_else(|| size::LARGE_SIZES.to_owned())
}

/// Parses the name of a function, or a pattern: the kernel would take a text with other characters for a command.
fn function(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_alphanumeric() || "_.$*?[]-".contains(c)) {
        return Err("a function is a name such as shrink_node, or a pattern such as 'shrink_*'".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses the id of a process or a thread.
fn process(text: &str) -> Result<i32, String> {
    text.parse()
        .ok()
        .filter(|id| *id > 0)
        .ok_or_else(|| "a process id is a number; --comm takes names of commands".to_owned())
}

/// Parses a time that is not zero: `10s`, `5min`, `1h30m`, `250ms`; a bare number is seconds.
fn time(text: &str) -> Result<Duration, String> {
    let span = duration::parse(text).filter(|&nanos| nanos > 0);
    span.and_then(from_nanos).ok_or_else(|| "a time is 10s, 5min, 1h30m or 250ms".to_owned())
}

/// A span of so many nanoseconds; `None` for 2^64 seconds and more.
fn from_nanos(nanos: u128) -> Option<Duration> {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    Some(Duration::new(seconds.try_into().ok()?, rest.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_dashes_is_told_the_line_to_type() {
        let mended = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(|word| word.replace('_', " ").into()).collect();
            CommandLine::try_parse_from(&words).err().and_then(|error| without_dashes(&words, &error))
        };
        let dashes = |line: &str| format!("put -- before the command: {line}");
        assert_eq!(mended("kmemtraced make -C x").unwrap(), dashes("kmemtraced -- make -C x"));
        assert_eq!(mended("kmemtraced -B make make -j").unwrap(), dashes("kmemtraced -B make -- make -j"));
        assert_eq!(
            mended("kmemtraced -d 5s sh -c it's;_x").unwrap(),
            dashes("kmemtraced -d 5s -- sh -c 'it'\\''s; x'")
        );
        let first = "put watch before its options: kmemtraced watch -B x -d 1";
        assert_eq!(mended("kmemtraced -B x watch -d 1").unwrap(), first);
        for (typed, line) in [
            ("kmemtraced recovr", "recovr: there is no such word; did you mean kmemtraced recover?"),
            ("kmemtraced topp", "topp: there is no such word; did you mean kmemtraced top?"),
            ("kmemtraced -d 5 topp", "topp: there is no such word; did you mean kmemtraced top -d 5?"),
            ("kmemtraced record -d 5", "record: kmemtraced records without a word; type: kmemtraced -d 5"),
            ("kmemtraced report x", "report: another program reads recordings: kmemtrace-report x"),
            ("kmemtraced leaks -n 5", "leaks: another program reads recordings: kmemtrace-report leaks -n 5"),
            ("kmemtraced 5", "5: is not a command; type: kmemtraced -d 5"),
            ("kmemtraced -g 10s", "10s: is not a command; type: kmemtraced -g -d 10s"),
            ("kmemtraced -f order_>_0 -d 1", "order > 0: is not a command; type: kmemtraced --filter 'order > 0' -d 1"),
        ] {
            assert_eq!(mended(typed).unwrap(), line);
        }
        for other in [
            "kmemtraced -- make",
            "kmemtraced --mak",
            "kmemtraced -b x make",
            "kmemtraced",
            "kmemtraced probe",
            "kmemtraced doctor",
        ] {
            assert_eq!(mended(other), None, "{other}");
        }
    }

    #[test]
    fn options_of_other_programs_are_told_and_none_is_ours() {
        let told =
            |word: &str| options_of_others::hint(&program().try_get_matches_from(["kmemtraced", word]).unwrap_err());
        let of_perf = options_of_others::OF_PERF.iter().map(|entry| ("perf", entry));
        let of_trace_cmd = options_of_others::OF_TRACE_CMD.iter().map(|entry| ("trace-cmd", entry));
        let of_report = options_of_others::OF_REPORT.iter().map(|entry| ("kmemtrace-report", entry));
        for (program, (names, remedy)) in of_perf.chain(of_trace_cmd).chain(of_report) {
            for name in *names {
                assert_eq!(told(name), Some(format!("{name} is an option of {program}: {remedy}")));
            }
        }
        assert!(
            told("--call-graph=fp").is_some_and(|line| line.starts_with("--call-graph is an option of perf: use -g"))
        );
        assert_eq!(told("--nonsense"), None);
        let args = Args::try_parse_from(["kmemtraced", "-ag", "-d", "5"]).unwrap();
        assert_eq!(args.stack, Some(StackWhen::Alloc));
        let args = Args::try_parse_from(["kmemtraced", "-g=all", "-p", "1,2"]).unwrap();
        assert_eq!((args.stack, args.pid), (Some(StackWhen::All), vec![1, 2]));
        let both = program().try_get_matches_from(["kmemtraced", "-a", "-p", "1"]).unwrap_err();
        assert!(options_of_others::hint(&both).is_some_and(|line| line.ends_with("leave one out")), "{both}");
    }

    #[test]
    fn sizes_and_times_are_read() {
        assert_eq!(large_size("64K"), Ok(65536));
        assert_eq!(large_size("16M"), Ok(16 << 20));
        assert_eq!(large_size("4096"), Ok(4096));
        assert_eq!(large_size("1.5MiB"), Ok(3 << 19));
        for bad in ["", "K", "-1", "0", "99999999999G", "1T", "é"] {
            assert!(large_size(bad).is_err(), "{bad}");
        }
        assert_eq!(large_size("16"), Ok(16 << 20));
        assert_eq!(time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(time("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(time("5min"), Ok(Duration::from_secs(300)));
        assert_eq!(time("20us"), Ok(Duration::from_micros(20)));
        for bad in ["", "s", "-1s", "0", "1e400", "inf", "nan"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn commands_to_the_kernel_are_no_functions() {
        let functions =
            |list: &str| Args::try_parse_from(["kmemtraced", "--functions", list]).map(|args| args.functions);
        let several = functions("shrink_*,__alloc_pages_slowpath.constprop.0,a[bc]?").unwrap();
        assert_eq!(several.unwrap(), ["shrink_*", "__alloc_pages_slowpath.constprop.0", "a[bc]?"]);
        for list in ["", "schedule:traceoff", "!shrink_node", "a b", ":mod:ext4", "a\nb", "a,*:stacktrace", "#5;"] {
            assert!(functions(list).is_err(), "{list}");
        }
        let none = Args::try_parse_from(["kmemtraced", "--functions", "-e", "latency", "--", "ls"]).unwrap();
        assert_eq!(none.functions, Some(Vec::new()), "the default list");
    }
}
