//! The time between start and stop: the recorder polls for a reason to stop and for changes by other programs.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kmemtrace_abi::disk::block::{END_ASKED, END_ERROR, END_LIMIT};
use kmemtrace_abi::text::size::whole_units;
use kmemtrace_abi::text::units;

use crate::args::Args;
use crate::control::foreign::Watcher;
use crate::output::destination::Destination;
use crate::output::trace_dir::Place;
use crate::process::messages;
use crate::process::signals::Signals;
use crate::process::signals::VIEWER_ENDED;
use crate::record::gate::{Allowed, Gate};
use crate::record::launcher::{Launcher, Program};
use crate::record::notices::{answer_counters, has_status_line, report_change};
use crate::record::tasks::Tasks;
use crate::source::TraceSource;
use crate::write::compress::Compression;
use crate::write::names::Names;
use crate::write::outcome::Progress;
use crate::write::workers::Workers;

/// Poll interval of all reasons to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The same with COMMAND, whose end is waited for.
const COMMAND_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between two status lines.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between two looks at the files by their names.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Reason to stop, as text for the user and as `END_*` for the end block.
pub(crate) struct Stop {
    pub(crate) why: String,
    pub(crate) reason: u32,
}

impl Stop {
    fn new(why: impl Into<String>, reason: u32) -> Option<Stop> {
        Some(Stop { why: why.into(), reason })
    }
}

/// A running recording, as the waiting thread sees it.
pub(crate) struct Running<'a> {
    pub(crate) args: &'a Args,
    pub(crate) workers: &'a Workers,
    pub(crate) output: &'a Destination,
    pub(crate) signals: &'a Signals,
    pub(crate) source: &'a dyn TraceSource,
    pub(crate) watcher: Option<&'a mut Watcher>,
    pub(crate) command: Option<(&'a mut Launcher, Program)>,
    pub(crate) gate: &'a Gate,
    pub(crate) names: &'a mut Names,
    pub(crate) tasks: Option<&'a mut Tasks>,
}

impl Running<'_> {
    /// Waits for the first reason to stop; reports changes by other programs meanwhile.
    pub(crate) fn wait(mut self) -> Stop {
        let start = Instant::now();
        let show = has_status_line(self.args);
        let mut status = StatusLine { start, shown: Instant::now(), events: 0 };
        let mut looked = start;
        let mut load = (self.args.compression() == Compression::Auto).then(|| self.workers.load_watch());
        let interval = if self.command.is_some() { COMMAND_INTERVAL } else { POLL_INTERVAL };
        let stop = loop {
            thread::sleep(interval);
            if let Some(stop) = self.asked(start).or_else(|| self.failed(&mut looked)) {
                break stop;
            }
            answer_counters(self.workers, self.signals);
            let Running { args, source, output, .. } = self;
            self.gate.narrow(Allowed { args, source, output, tasks: self.tasks.as_deref() });
            self.names.look(|| self.source.comms());
            if let Some(load) = &mut load {
                load.look();
            }
            if show && status.shown.elapsed() >= STATUS_INTERVAL {
                status.show(&self);
            }
        };
        self.signals.acknowledge();
        if show {
            messages::show("");
        }
        stop
    }

    /// A stop by the user: a signal, the end of COMMAND, or a limit.
    fn asked(&mut self, start: Instant) -> Option<Stop> {
        if self.signals.stops() > 0 {
            return Stop::new(self.signals.stopped_by(), END_ASKED);
        }
        if let Some(why) = self.signals.limit() {
            return Stop::new(why, END_LIMIT);
        }
        if self.output.is_broken() {
            return Stop::new(VIEWER_ENDED, END_ASKED);
        }
        if let Some(stop) = self.command_has_ended() {
            return Some(stop);
        }
        if let Some(tasks) = self.tasks.as_deref_mut()
            && tasks.look(self.args, self.source, self.watcher.as_deref_mut(), self.names)
        {
            return Stop::new("the recorded tasks have ended", END_ASKED);
        }
        if self.args.duration.is_some_and(|limit| start.elapsed() >= limit) {
            return Stop::new("--duration", END_LIMIT);
        }
        let (events, names) = (self.sum(|p| &p.bytes), self.names.bytes());
        if let Some(limit) = self.args.max_size.filter(|&limit| events + names >= limit) {
            let [limit, events, names] = [whole_units(limit), units::bytes(events), units::bytes(names)];
            return Stop::new(format!("--max-size {limit}: events {events}, symbols and texts {names}"), END_LIMIT);
        }
        None
    }

    /// A stop by the end of COMMAND, or because nobody can tell of its end any more.
    fn command_has_ended(&mut self) -> Option<Stop> {
        let (launcher, command) = self.command.as_mut()?;
        let program = self.args.command_name();
        match launcher.try_wait(*command) {
            Ok(None) => {
                if launcher.has_gone_silent() {
                    let error = launcher.silent();
                    messages::say(format!("kmemtraced: the end of {program} may not be seen: {error}: Ctrl-C stops"));
                }
                None
            }
            Ok(Some(status)) => {
                let how = status.code().map_or_else(|| format!("{status}"), |code| format!("exited {code}"));
                Stop::new(format!("{program} {how}"), END_ASKED)
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Stop::new(format!("the process that started {program} was killed"), END_ERROR)
            }
            Err(error) => Stop::new(format!("{program}: cannot be run: {error}"), END_ERROR),
        }
    }

    /// A stop by a failure: a file cannot be written, or the source, the trace directory or a file of it is gone. `looked`: the last look
    /// at the files by their names.
    fn failed(&mut self, looked: &mut Instant) -> Option<Stop> {
        if self.names.has_failed() || self.workers.progress().any(|(_, p)| p.failed.load(Ordering::Acquire)) {
            return Stop::new("cannot write", END_ERROR);
        }
        report_change(self.watcher.as_mut().and_then(|watcher| watcher.compare()));
        if self.watcher.as_ref().is_some_and(|watcher| watcher.is_gone()) {
            return Stop::new("the source of the recording was removed", END_ERROR);
        }
        if looked.elapsed() < LOOK_INTERVAL {
            return None;
        }
        *looked = Instant::now();
        if let Some(why) = self.workers.killed() {
            return Stop::new(why, END_ERROR);
        }
        let shown = self.output.shown();
        if self.output.place() == Place::Unreached {
            return Stop::new(format!("no path leads to {shown} any more"), END_ERROR);
        }
        let changed = self.output.changes();
        let first = changed.first()?;
        Stop::new(format!("{shown}/{first} by another program"), END_ERROR)
    }

    fn sum(&self, counter: fn(&Progress) -> &AtomicU64) -> u64 {
        self.workers.progress().map(|(_, p)| counter(p).load(Ordering::Relaxed)).sum()
    }
}

/// The status line, rewritten in place once a second.
struct StatusLine {
    start: Instant,
    /// Time of the last line, and the number of events in it.
    shown: Instant,
    events: u64,
}

impl StatusLine {
    fn show(&mut self, running: &Running<'_>) {
        let events = running.sum(|p| &p.events);
        let rate = (events - self.events) as f64 / self.shown.elapsed().as_secs_f64();
        let seconds = self.start.elapsed().as_secs_f64();
        let (mib, lost) = (running.sum(|p| &p.bytes) >> 20, running.sum(|p| &p.lost));
        let figures =
            [format!("+{seconds:.1} s"), format!("{lost} lost"), format!("{mib} MiB"), format!("{rate:.0} events/s")];
        messages::show(&fitting(&figures, columns()));
        (self.shown, self.events) = (Instant::now(), events);
    }
}

/// Columns of the terminal; 80 where it does not tell.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0).unwrap_or(80)
}

/// Figures on one line that does not wrap: those at the end are left out where the terminal is narrow. The last column stays
/// free, because some terminals wrap once it is written, and there is room for the echo of Ctrl-C.
fn fitting(figures: &[String], columns: usize) -> String {
    let room = columns.saturating_sub(1 + messages::ECHO);
    let mut line = String::new();
    for figure in figures {
        let more = if line.is_empty() { figure.clone() } else { format!("   {figure}") };
        if line.len() + more.len() > room {
            break;
        }
        line += &more;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_leaves_out_figures_before_it_wraps() {
        let figures = ["+3600.0 s", "1234567 lost", "12345 MiB", "12345678 events/s"].map(str::to_owned);
        assert_eq!(fitting(&figures, 80), "+3600.0 s   1234567 lost   12345 MiB   12345678 events/s");
        assert_eq!(fitting(&figures, 40), "+3600.0 s   1234567 lost   12345 MiB");
        assert_eq!(fitting(&figures, 12), "+3600.0 s");
        for columns in 0..100 {
            assert!(fitting(&figures, columns).len() < columns.max(1), "{columns}");
        }
    }
}
