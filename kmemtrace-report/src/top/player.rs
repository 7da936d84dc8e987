//! Rounds of reading: what has been written since the last one, or the next second of a finished trace.

use std::time::{Duration, Instant};

use kmemtrace::Trace;
use kmemtrace::documents::head::{CompletenessMembers, TraceMembers};
use kmemtrace::live::{Fed, Monitor, Snapshot, SnapshotRequest};
use kmemtrace_abi::text::escape::escape;
use serde_json::json;

use super::machine;
use super::pace::Pace;
use super::source::Source;
use crate::render::top_screen::state::{ScreenState, Sort};
use crate::render::top_screen::{Recording, Subject};

/// Time between two frames of text, and between two snapshots.
pub(super) const FRAME: Duration = Duration::from_secs(1);
/// Nanoseconds of a second.
pub(super) const SECOND: u64 = 1_000_000_000;
/// Pause where nothing new is there.
const PAUSE: Duration = Duration::from_millis(100);
/// Time of one round.
pub(super) const ROUND: Duration = Duration::from_millis(50);
/// Time for what was recorded before the screen began.
const LOADING: Duration = Duration::from_secs(5);
/// Distance to the present beyond which the rest is passed over, in nanoseconds.
const FAR_BEHIND: u64 = 2_000_000_000;
/// Time between two looks at the recorder and at the names, and shortest time over which bytes are counted.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// Time between two readings of the names, as a multiple of what one takes.
const RENEWAL_SHARE: u32 = 20;

/// Monitor of a trace, with the trace.
pub(super) struct Player<'a> {
    source: Source,
    is_still: bool,
    trace: Trace,
    monitor: Monitor<'a>,
    pub(super) subject: Subject,
    begun: Instant,
    looked: Instant,
    bytes_of_names: u64,
    /// Time of the last count of bytes, and the number of bytes read then.
    bytes_before: (Instant, u64),
    /// Time before which the names are not read again.
    names_due: Instant,
    pace: Pace,
}

impl<'a> Player<'a> {
    pub(super) fn new(source: Source, trace: Trace, monitor: Monitor<'a>, subject: Subject) -> Player<'a> {
        // A text of what is held has no course of events: all of it is read at once.
        let is_still = !trace.info.capabilities.past;
        let state = if source.is_growing() || is_still { Recording::Loads } else { Recording::Plays };
        let bytes_of_names = source.bytes_of_names();
        let now = Instant::now();
        let subject = Subject { state, ..subject };
        Player {
            source,
            is_still,
            trace,
            monitor,
            subject,
            begun: now,
            looked: now,
            bytes_of_names,
            names_due: now,
            bytes_before: (now, 0),
            pace: Pace::new(),
        }
    }

    /// State of the screen at its begin.
    pub(super) fn screen_state(&self) -> ScreenState {
        let mut state = ScreenState::default();
        if self.is_still {
            state.sort = Sort::Live;
        }
        state
    }

    /// The trace, as far as it is read.
    pub(super) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// True while a recorder is writing the trace.
    pub(super) fn follows(&self) -> bool {
        matches!(self.subject.state, Recording::Runs | Recording::Loads)
    }

    /// One round up to `until`, in nanoseconds since the begin of the trace. Returns true where nothing more is there yet.
    pub(super) fn round(&mut self, until: Option<u64>) -> bool {
        if self.has_ended() {
            return true;
        }
        if let Err(error) = self.source.take_more() {
            self.subject.state = Recording::Ended(escape(format!("{error:#}").as_bytes()).into_owned());
            return true;
        }
        let until = if self.follows() { None } else { until };
        let fed = self.monitor.feed(&mut self.trace, until, Instant::now() + ROUND);
        match fed {
            Fed::Ended if self.is_still => self.subject.state = Recording::Still,
            Fed::Ended => {
                if self.source.is_growing() {
                    // The recorder writes the last names when it ends.
                    self.renew_names();
                }
                let reason = self.source.reason(&self.trace);
                self.subject.state = Recording::Ended(reason.to_owned());
            }
            Fed::CaughtUp if self.subject.state == Recording::Loads && !self.is_still => self.run(),
            Fed::Behind if self.is_far_behind() => {
                self.monitor.skip(&mut self.trace);
                self.run();
            }
            Fed::CaughtUp | Fed::Behind => {}
        }
        if self.follows() && self.looked.elapsed() >= BETWEEN_LOOKS {
            self.look();
        }
        fed != Fed::Behind
    }

    /// Goes on to what is recorded now.
    fn run(&mut self) {
        if self.subject.state == Recording::Loads {
            // The share of the processor counts from now on.
            self.pace = Pace::new();
        }
        self.subject.state = Recording::Runs;
    }

    /// Time to leave the processor to others before the next round.
    pub(super) fn rest(&mut self) -> Duration {
        if self.subject.state == Recording::Runs { self.pace.rest() } else { Duration::ZERO }
    }

    fn is_far_behind(&self) -> bool {
        match self.subject.state {
            Recording::Loads => !self.is_still && self.begun.elapsed() > LOADING,
            Recording::Runs => self.monitor.lag().is_some_and(|lag| lag > FAR_BEHIND),
            Recording::Plays | Recording::Ended(_) | Recording::Still => false,
        }
    }

    /// True where nothing more comes.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.subject.state, Recording::Ended(_) | Recording::Still)
    }

    /// Looks at the recorder, which may have been killed, and at the names, which may be more by now.
    fn look(&mut self) {
        self.looked = Instant::now();
        if !self.source.has_recorder() {
            // The rest is as much as there will be.
            self.trace.streams.iter_mut().for_each(|stream| stream.follow(false));
        }
        let bytes = self.source.bytes_of_names();
        if bytes != self.bytes_of_names && Instant::now() >= self.names_due {
            self.bytes_of_names = bytes;
            let begun = Instant::now();
            self.renew_names();
            // Names of threads come each second on a busy machine: reading them all again takes a small share of the time.
            self.names_due = Instant::now() + begun.elapsed() * RENEWAL_SHARE;
        }
        // A clock that is this machine's is that of a recording of it.
        let is_here = self.monitor.lag().is_some();
        self.subject.memory = is_here.then(|| machine::memory(&self.trace.metadata.meminfo_start)).flatten();
    }

    /// Reads the names of the trace again.
    pub(super) fn renew_names(&mut self) {
        if let Some(mut names) = self.source.names() {
            self.trace.metadata.meminfo_start = std::mem::take(&mut names.meminfo_start);
            self.monitor.renew_names(names);
        }
    }

    /// Reads what was recorded before, as long as that may take.
    pub(super) fn load(&mut self) {
        while self.subject.state == Recording::Loads {
            self.round(None);
        }
    }

    /// Plays up to a time, or to the end.
    pub(super) fn play_until(&mut self, until: Option<u64>) {
        while !self.has_ended() && !self.round(until) {}
    }

    /// Follows up to a moment.
    pub(super) fn wait_until(&mut self, until: Option<u64>, moment: Instant) {
        while Instant::now() < moment {
            let pause = if self.round(until) { PAUSE } else { self.rest() };
            std::thread::sleep(pause.min(moment.saturating_duration_since(Instant::now())));
        }
    }

    pub(super) fn set_mark(&mut self) {
        self.monitor.set_mark();
    }

    pub(super) fn snapshot(&mut self, request: &SnapshotRequest) -> Snapshot {
        let observed = self.monitor.observed(&self.trace);
        self.subject.head = json!({
            "completeness": CompletenessMembers::of(&observed.completeness, false),
            "trace": TraceMembers::of_observed(&self.trace.info, &observed),
        });
        let snapshot = self.monitor.snapshot(&self.trace, request);
        let (since, bytes) = self.bytes_before;
        if since.elapsed() >= BETWEEN_LOOKS {
            let bytes = u128::from(snapshot.bytes_read.saturating_sub(bytes));
            let rate = bytes * u128::from(SECOND) / since.elapsed().as_nanos();
            self.subject.bytes_now = u64::try_from(rate).ok().filter(|_| self.subject.state == Recording::Runs);
            self.bytes_before = (Instant::now(), snapshot.bytes_read);
        }
        snapshot
    }
}
