//! A recording of two seconds by a recorder of its own, in an instance and a private directory that are removed.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, bail};
use kmemtrace_abi::text::escape::escape;
use rustix::process::{Pid, Signal, kill_process};

use super::held::Held;
use crate::args::Args;
use crate::fs::held_dir::random_digits;

/// Seconds of the recording.
const SECONDS: &str = "2";
/// Time after which a recorder that has not ended is asked to.
const PATIENCE: Duration = Duration::from_secs(30);
/// Poll interval of the recorder and of signals.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Begin of the recorder's line with events, bytes and losses.
const STOPPED: &str = "stopped: --duration";

/// Text about the test: figures of the recording, or `failed` with the reason.
pub(super) fn run(args: &Args, signals: &Held) -> String {
    record(args, signals).unwrap_or_else(|error| format!("failed: {error:#}"))
}

fn record(args: &Args, signals: &Held) -> anyhow::Result<String> {
    let dir = std::env::temp_dir().join(format!("kmemtrace-doctor-{}", random_digits()?));
    let recorder = start(args, &dir)?;
    let output = wait(recorder, signals);
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            bail!("{}: cannot be removed: {error}: remove it by hand", escape(dir.as_os_str().as_encoded_bytes()));
        }
        _ => {}
    }
    told(&output?)
}

fn start(args: &Args, dir: &Path) -> anyhow::Result<Child> {
    let program = std::env::current_exe().unwrap_or_else(|_| "kmemtraced".into());
    let mut words: Vec<OsString> = ["-d", SECONDS, "-B"].map(OsString::from).into();
    words.extend([format!("{}-doctor", args.instance).into(), "-o".into(), dir.into()]);
    if let Some(tracefs) = &args.tracefs {
        words.extend(["--tracefs".into(), tracefs.into()]);
    }
    let mut command = Command::new(&program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().with_context(|| format!("{}: cannot be run", program.display()))
}

/// Waits for the recorder, which is asked to end when its time is over, and after a signal.
fn wait(mut recorder: Child, signals: &Held) -> anyhow::Result<Output> {
    let (mut asked, mut is_stopped) = (Instant::now(), false);
    // The few lines of the recorder fit into a pipe.
    while recorder.try_wait()?.is_none() {
        let is_first = signals.came() && !std::mem::replace(&mut is_stopped, true);
        if is_first || asked.elapsed() > PATIENCE {
            asked = Instant::now();
            let _ = kill_process(Pid::from_child(&recorder), Signal::TERM);
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(recorder.wait_with_output()?)
}

/// Text about the recorder's lines and status.
fn told(output: &Output) -> anyhow::Result<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    if let (Some(0 | 1), Some(figures)) =
        (output.status.code(), said.lines().find_map(|line| line.strip_prefix(STOPPED)))
    {
        return Ok(format!("recorded {SECONDS} s: {}", figures.trim()));
    }
    let reason = said.lines().find_map(|line| line.strip_prefix("kmemtraced: "));
    let reason = reason.or(said.lines().last()).unwrap_or_default();
    bail!("the recorder ended with {}: {}", output.status, escape(reason.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn output(status: i32, said: &str) -> Output {
        Output { status: ExitStatus::from_raw(status << 8), stdout: Vec::new(), stderr: said.into() }
    }

    #[test]
    fn figures_or_the_reason_are_told() {
        let lines = "recording to x\nstopped: --duration   12 events   1.0 KiB   0 lost\nnext: x\n";
        assert_eq!(told(&output(0, lines)).unwrap(), "recorded 2 s: 12 events   1.0 KiB   0 lost");
        let refused = told(&output(2, "kmemtraced: no tracefs\n")).unwrap_err().to_string();
        assert!(refused.contains("no tracefs") && refused.contains("exit status: 2"), "{refused}");
        assert!(told(&output(3, "")).is_err());
    }
}
