//! `kmemtrace-check`: verifies a trace, and prints for each file what is lost, missing or damaged, where, and the
//! remedy.
//!
//! [`input`] finds the paths, [`reading`] reads every byte once, [`checks`] looks for findings over the whole trace,
//! [`table`] and [`machine`] print. Findings within a file come from the reader in `kmemtrace-abi`.

mod advice;
mod checks;
mod confine;
mod explain;
mod input;
mod machine;
mod options;
mod reading;
#[cfg(test)]
mod sample;
mod table;

use std::io::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use clap::{CommandFactory, Parser};
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::memory::Limit;
use kmemtrace_abi::open::OpenOptions;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_fence::check_stdout;

use options::{Format, Options};
use reading::CheckedTrace;

/// Exit statuses, from best to worst; `kmemtrace-report` uses the same names.
mod exit {
    /// Every file is whole and no event was lost.
    pub(crate) const OK: u8 = 0;
    /// Usable, but a file is lossy or truncated.
    pub(crate) const INCOMPLETE: u8 = 1;
    /// Wrong usage, unreadable input, or an output that cannot be written.
    pub(crate) const UNUSABLE: u8 = 2;
    /// No trace at all, a corrupt file, or `--strict` and a file that is not whole.
    pub(crate) const BAD_TRACE: u8 = 3;
}

#[global_allocator]
static ALLOCATOR: kmemtrace_fence::Allocator = kmemtrace_fence::Allocator;

fn main() -> ExitCode {
    if let Some(small) = kmemtrace_fence::small_stack("kmemtrace-check") {
        return small;
    }
    kmemtrace_fence::raise_open_files();
    kmemtrace_fence::no_signal_for_large_files();
    if let Some(shell) = options::completions() {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Options::command(), "kmemtrace-check", &mut script);
        return ExitCode::from(print(&script));
    }
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(help) if !help.use_stderr() => {
            return ExitCode::from(told(
                check_stdout().and_then(|()| help.print()).and_then(|()| io::stdout().flush()),
            ));
        }
        Err(error) => error.exit(),
    };
    let mut text = Vec::new();
    let mut status = exit::OK;
    if let Some(code) = options.explain {
        explain::print(code, &mut text);
    } else {
        let threads = options.jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
        kmemtrace_fence::set("kmemtrace-check", Limit::new(options.max_memory), threads);
        match confine::close(&options) {
            Ok(lines) => lines.iter().for_each(|line| complain(line)),
            Err(line) => {
                complain(&line);
                return ExitCode::from(exit::UNUSABLE);
            }
        }
        let traces;
        (traces, status) = check_all(&options.paths, &options.of_text(), (threads, options.strict), &mut complain);
        let is_silent = traces.is_empty() || options.quiet && status == exit::OK;
        if !is_silent {
            match options.format {
                Format::Table => table::print(&traces, options.limit, &mut text),
                Format::Json => machine::json(&traces, &mut text),
                Format::Csv => machine::csv(&traces, &mut text),
                Format::Tsv => machine::tsv(&traces, &mut text),
            }
        }
    }
    ExitCode::from(status.max(print(&text)))
}

/// Prints a text; the exit status.
fn print(text: &[u8]) -> u8 {
    let mut stdout = io::stdout();
    told(check_stdout().and_then(|()| stdout.write_all(text)).and_then(|()| stdout.flush()))
}

/// Exit status of what was printed.
fn told(printed: io::Result<()>) -> u8 {
    match printed {
        // A closed pipe is no error: the reader of the output may stop early.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("standard output: cannot be written: {error}"));
            exit::UNUSABLE
        }
        _ => exit::OK,
    }
}

/// Checks each input by itself: inputs may be of different recordings. Returns the traces and the worst status; an input that cannot be
/// read is a complaint.
fn check_all(
    paths: &[PathBuf],
    of_text: &OpenOptions,
    (threads, strict): (usize, bool),
    complain: &mut dyn FnMut(&str),
) -> (Vec<CheckedTrace>, u8) {
    let (mut traces, mut status) = (Vec::new(), exit::OK);
    let paths = input::or_default(paths).unwrap_or_else(|message| {
        complain(&message);
        status = exit::UNUSABLE;
        Vec::new()
    });
    for path in paths {
        match reading::read(path, of_text.clone(), threads) {
            Ok(mut trace) => {
                checks::run(&mut trace);
                status = status.max(status_of(&trace, strict));
                traces.push(trace);
            }
            Err(error) => {
                status = status.max(if error.is_no_trace() { exit::BAD_TRACE } else { exit::UNUSABLE });
                complain(&error.to_string());
            }
        }
    }
    (traces, status)
}

fn status_of(trace: &CheckedTrace, strict: bool) -> u8 {
    match trace.files.iter().map(|f| f.facts.verdict).max().unwrap_or_default() {
        Verdict::Complete => exit::OK,
        Verdict::Corrupt => exit::BAD_TRACE,
        Verdict::Lossy | Verdict::Truncated if strict => exit::BAD_TRACE,
        Verdict::Lossy | Verdict::Truncated => exit::INCOMPLETE,
    }
}

/// Prints one line on standard error, escaped as a whole because it may name a path.
fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "kmemtrace-check: {}", escape(message.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::{OpenOptions, PathBuf, check_all};
    use crate::sample::Sample;
    use kmemtrace_tests::generate::{Options, Shape};

    /// Worst status of the inputs, and the complaints.
    fn check(paths: &[PathBuf], strict: bool) -> (u8, Vec<String>) {
        let mut complaints = Vec::new();
        let (_, status) =
            check_all(paths, &OpenOptions::default(), (2, strict), &mut |message| complaints.push(message.to_owned()));
        (status, complaints)
    }

    fn quiet(paths: &[PathBuf], strict: bool) -> u8 {
        let (status, complaints) = check(paths, strict);
        assert_eq!(complaints, [""; 0]);
        status
    }

    #[test]
    fn the_worst_input_decides() {
        let plain = Options::plain(Shape::plain(), 2, 300);
        let whole = Sample::new(&plain, 1);
        let lossy = Sample::new(&Options { loss: true, ..plain.clone() }, 2);
        let cut = Sample::new(&Options { cut: vec![1], ..plain.clone() }, 3);
        let bad = Sample::new(&plain, 4);
        bad.change("cpu0.out", |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
        });
        // Inputs are separate recordings.
        for (inputs, want, strict) in
            [(&[&whole][..], 0, 0), (&[&whole, &lossy], 1, 3), (&[&cut, &whole], 1, 3), (&[&bad, &whole, &cut], 3, 3)]
        {
            let paths: Vec<PathBuf> = inputs.iter().map(|s| s.path().to_owned()).collect();
            assert_eq!((quiet(&paths, false), quiet(&paths, true)), (want, strict));
        }
        assert_eq!(quiet(&[bad.file("cpu1.out"), whole.file("cpu0.out")], true), 0);
    }

    #[test]
    fn an_unreadable_input_is_reported_in_one_line() {
        let sample = Sample::new(&Options::plain(Shape::plain(), 1, 10), 1);
        let make = |name: &str| sample.path().join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            make("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        std::os::unix::fs::symlink("loop", make("loop")).unwrap();
        std::fs::create_dir(make("empty")).unwrap();
        std::fs::write(make("cpu9.out"), "no trace").unwrap();
        std::fs::create_dir(make("with-fifo")).unwrap();
        std::fs::rename(make("fifo"), make("with-fifo/cpu0.out")).unwrap();
        for (path, want) in [
            (make("absent"), 2),
            (make("loop"), 2),
            (make("with-fifo/cpu0.out"), 2),
            (make("with-fifo"), 2),
            ("/dev/null".into(), 2),
            (make("empty"), 3),
            (make("cpu9.out"), 3),
        ] {
            let (status, complaints) = check(&[path.clone(), sample.file("cpu0.out")], false);
            assert_eq!((status, complaints.len()), (want, 1), "{}: {complaints:?}", path.display());
            assert!(complaints[0].starts_with(&path.display().to_string()) && !complaints[0].contains('\n'));
        }
    }

    #[test]
    fn files_of_two_recordings_in_one_directory_are_refused() {
        let options = Options::plain(Shape::plain(), 2, 50);
        let (ours, theirs) = (Sample::new(&options, 1), Sample::new(&options, 2));
        std::fs::copy(theirs.file("cpu1.out"), ours.file("cpu1.out")).unwrap();
        let (status, complaints) = check(&[ours.path().to_owned()], false);
        assert!(status == 3 && complaints[0].contains("different recordings"), "{complaints:?}");
    }

    #[test]
    fn a_file_named_for_another_cpu_is_corrupt() {
        let sample = Sample::new(&Options::plain(Shape::plain(), 2, 50), 1);
        std::fs::copy(sample.file("cpu0.out"), sample.file("cpu1.out")).unwrap();
        assert_eq!(quiet(&[sample.path().to_owned()], false), 3);
        assert_eq!(quiet(&[sample.file("cpu0.out")], false), 0);
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        super::Options::command().debug_assert();
    }
}
