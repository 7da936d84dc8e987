//! `kmemtraced top`: a recorder and the live screen.
//!
//! Both are child processes: a screen that hangs holds up no recorder, and one that has no privileges reads what root has recorded.
//! This process waits for the two, ends one with the other, and removes the private directory. `options` has the command line,
//! `screen` the screen and the user that it runs as, `output` the lines that the recorder writes meanwhile.

mod options;
mod output;
mod screen;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kmemtrace_abi::text::escape::escape;
use rustix::process::{Pid, Signal, kill_process};

use crate::args::{NOT_STARTED, TopArgs};
use crate::fs::held_dir::HeldDir;
use crate::process::report;
use crate::record::shutdown::ENDED_EARLY;
use options::Options;
use output::Output;
use screen::Screen;

/// Poll interval of the child processes and signals.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time after which a recorder that was asked to end is asked a second time, which ends it at once.
const PATIENCE: Duration = Duration::from_secs(20);
/// Signals that end both.
const STOP: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Records and shows the screen; the exit status.
pub(crate) fn top(args: TopArgs) -> u8 {
    let words: Vec<OsString> = std::env::args_os().skip(2).collect();
    Options::of(args, &words).and_then(|options| run(&options)).unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "kmemtraced: {error:#}");
        NOT_STARTED
    })
}

fn run(options: &Options) -> anyhow::Result<u8> {
    check_terminal()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in STOP {
        signal_hook::flag::register(signal.as_raw(), Arc::clone(&stop)).context("signals cannot be taken")?;
    }
    let reader = report::reader();
    let (output, mut recorder) = start_recorder(options, reader)?;
    let begun = wait_for_begin(options, &mut recorder, &stop);
    let done = begun.and_then(|has_begun| match has_begun {
        true => Screen::start(options, reader).map(Some),
        false => Ok(None),
    });
    let status = match done {
        Ok(screen) => wait(screen, recorder, options, &stop),
        Err(error) => {
            end(&mut recorder, &stop)?;
            Err(error)
        }
    };
    output.show();
    clean_up(options, reader);
    status
}

/// Refuses what is no terminal.
fn check_terminal() -> anyhow::Result<()> {
    let term = std::env::var("TERM").unwrap_or_default();
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() || term.is_empty() || term == "dumb" {
        bail!(
            "top: there is no terminal that a screen can be drawn on: run kmemtraced, and beside it kmemtrace-report top --batch N"
        );
    }
    Ok(())
}

/// Starts the recorder; its lines, and those of COMMAND, wait until the screen is gone.
fn start_recorder(options: &Options, reader: Option<(u32, u32)>) -> anyhow::Result<(Output, Child)> {
    let program = std::env::current_exe().unwrap_or_else(|_| "kmemtraced".into());
    let (output, [out, error]) = Output::new().context("the recorder's lines cannot be taken")?;
    let mut command = Command::new(&program);
    command.args(options.recorder_words(reader)).stdin(Stdio::null()).stdout(out).stderr(error);
    let spawned = command.spawn().with_context(|| format!("{}: cannot be run", program.display()))?;
    Ok((output, spawned))
}

/// Waits until the trace has its files; false where the recorder has ended, or was asked to.
fn wait_for_begin(options: &Options, recorder: &mut Child, stop: &AtomicBool) -> anyhow::Result<bool> {
    let names = options.dir.join("meta.out");
    while !names.exists() {
        if recorder.try_wait()?.is_some() || stop.load(Ordering::Acquire) {
            return Ok(false);
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(true)
}

/// Waits for the end of both; the screen's end is the recorder's.
fn wait(screen: Option<Screen>, mut recorder: Child, options: &Options, stop: &AtomicBool) -> anyhow::Result<u8> {
    let mut screen_status = None;
    if let Some(mut screen) = screen {
        let mut recorded = None;
        let status = loop {
            if let Some(status) = screen.try_wait()? {
                break status;
            }
            if recorded.is_none() {
                recorded = recorder.try_wait()?;
                if recorded.is_some_and(|status| status.signal().is_some()) {
                    undo(options);
                }
            }
            if stop.swap(false, Ordering::AcqRel) {
                screen.ask_to_end();
                ask(&recorder);
            }
            thread::sleep(POLL_INTERVAL);
        };
        screen.restore(status);
        screen_status = Some(status);
    }
    let recorded = end(&mut recorder, stop)?;
    Ok(status(screen_status, recorded))
}

/// Exit status: the recorder's; that of a failed screen where the recorder has nothing to report.
fn status(screen: Option<ExitStatus>, recorder: ExitStatus) -> u8 {
    let recorded = recorder.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(ENDED_EARLY);
    match screen {
        Some(status) if !status.success() && recorded == 0 => ENDED_EARLY,
        _ => recorded,
    }
}

fn ask(recorder: &Child) {
    let _ = kill_process(Pid::from_child(recorder), Signal::TERM);
}

/// Asks the recorder to end, and waits for it; a signal asks again.
fn end(recorder: &mut Child, stop: &AtomicBool) -> anyhow::Result<ExitStatus> {
    if let Some(status) = recorder.try_wait()? {
        return Ok(status);
    }
    ask(recorder);
    let mut asked = Instant::now();
    loop {
        if let Some(status) = recorder.try_wait()? {
            return Ok(status);
        }
        if stop.swap(false, Ordering::AcqRel) || asked.elapsed() > PATIENCE {
            asked = Instant::now();
            ask(recorder);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Undoes what a killed recorder has left in the kernel.
fn undo(options: &Options) {
    let program = std::env::current_exe().unwrap_or_else(|_| "kmemtraced".into());
    let mut command = Command::new(program);
    command.args(["recover", "-B", &options.instance]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = command.status();
}

/// Removes the private directory; a recording that is kept becomes its recorder's again.
fn clean_up(options: &Options, reader: Option<(u32, u32)>) {
    let shown = || escape(options.dir.as_os_str().as_encoded_bytes()).into_owned();
    if !options.keeps {
        match std::fs::remove_dir_all(&options.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let _ =
                    writeln!(io::stderr(), "kmemtraced: {}: cannot be removed: {error}: remove it by hand", shown());
            }
            _ => {}
        }
        return;
    }
    if reader.is_some()
        && options.dir.exists()
        && let Err(error) = take_back(&options.dir)
    {
        let _ = writeln!(io::stderr(), "kmemtraced: {}: still belongs to the user of the screen: {error:#}", shown());
    }
}

/// Makes a directory that was lent to another user the caller's again.
fn take_back(dir: &Path) -> anyhow::Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let parent = HeldDir::reach(dir.parent().unwrap_or(Path::new("")))?;
    let held = parent.open_dir(dir.file_name().context("is not the name of a directory")?)?;
    Ok(held.give_to(user, group)?)
}
