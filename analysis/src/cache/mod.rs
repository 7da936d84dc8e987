//! The index beside a large trace, `report.index`: what earlier passes over all of it came to, so that the next report starts at
//! once. Nothing needs it; where it does not fit the files, or is damaged in any way, it counts as not there and is written anew.

mod answer;
mod bytes;
mod content;
mod identity;
mod trust;

use std::ffi::OsStr;
use std::fmt::Arguments;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::SystemTime;

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::Names;
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::stream::report::Source;
use kmemtrace_abi::trace::{InputKind, Trace};

pub(crate) use answer::Question;
use content::{Content, Whole};
use identity::Identity;

use crate::account::completeness::Completeness;
use crate::memory::budget::Budget;
use crate::order::merger::Order;
use crate::pairing::pairs::Paired;
use crate::progress::Notes;
use crate::whole_file::Directory;

/// The name of the file.
pub const NAME: &str = "report.index";
/// Larger ones are neither written nor read.
const MOST_BYTES: u64 = 256 << 20;
/// Memory for each byte of an index while it is taken apart.
const MEMORY_PER_BYTE: u64 = 4;
/// Memory for each live object and for each row while they are written.
const MEMORY_PER_OBJECT: u64 = 48;
const MEMORY_PER_ROW: u64 = 1024;

/// Bytes of a trace's files from which an index pays, where nothing else is said.
pub const PAYS_FROM: u64 = 64 << 20;

/// When there is one.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Bytes of a trace's files from which it pays.
    pub(crate) from: u64,
    pub(crate) is_wanted: bool,
    /// Takes what becomes of it.
    pub(crate) notes: Notes,
}

/// The index of a trace, and what it said when the trace was opened.
#[derive(Debug)]
pub(crate) struct Index {
    dir: Arc<Directory>,
    settings: Settings,
    budget: Budget,
    /// The files before any event was read.
    identity: Identity,
    /// User id of all of the trace's files.
    owner: Option<u32>,
    /// Whether a later change of them would be seen.
    is_settled: bool,
    found: Option<Content>,
}

impl Index {
    /// That of a trace just opened: `None` where it can have none, since it is no finished directory of ours, or a small one.
    pub(crate) fn of(trace: &Trace, settings: Settings, budget: Budget) -> Option<Index> {
        let [dir] = &trace.inputs[..] else { return None };
        if !settings.is_wanted || trace.info.input != InputKind::Kmemtrace || !trace.info.missing.is_empty() {
            return None;
        }
        let identity = Identity::of(trace).filter(|_| dir.is_dir())?;
        if identity.bytes() < settings.from {
            return None;
        }
        let is_settled = identity.is_settled(SystemTime::now());
        let (dir, owner) = (Directory::open(dir).ok()?, identity::owner(trace));
        let mut index = Index { dir, settings, budget, identity, owner, is_settled, found: None };
        match read(&index.dir, owner, budget) {
            Ok(Some(bytes)) => match Content::read(bytes) {
                None => index.tell(format_args!("damaged, or of another version: not used")),
                Some(found) if found.identity != index.identity => {
                    index.tell(format_args!("older than the trace: not used"));
                }
                found => index.found = found,
            },
            Ok(None) => {}
            Err(reason) => index.tell(format_args!("not used: {reason}")),
        }
        Some(index)
    }

    fn tell(&self, what: Arguments<'_>) {
        self.settings.notes.note(format_args!("{NAME}: {what}"));
    }

    /// Order key of the last event of all.
    pub(crate) fn last_key(&self) -> Option<u64> {
        Some(self.found.as_ref()?.whole.last)
    }

    /// What a pass over the whole trace would come to, if one did that asked the same.
    pub(crate) fn answer(&mut self, asked: Question, names: &mut Names) -> Option<(Order, Paired, Completeness)> {
        let found = self.found.as_ref()?;
        let (question, bytes) = found.answer(asked)?;
        let Some((order, paired)) = answer::read(question, bytes, asked.lists_live, names) else {
            self.tell(format_args!("makes no sense: not used"));
            self.found = None;
            return None;
        };
        let completeness = found.whole.completeness();
        self.tell(format_args!("the figures are taken from it"));
        Some((order, paired, completeness))
    }

    /// Has the streams of the trace read only what is needed for a window that `resolve` finds from the first order key of all;
    /// that key, the window and what is known of the whole trace. `None`: all must be read.
    pub(crate) fn narrow(&mut self, trace: &mut Trace, resolve: impl FnOnce(u64) -> (u64, u64)) -> Option<Narrowed> {
        let found = self.found.as_ref()?;
        // Sequence holes and dropped relay records are known only after the whole trace was read.
        let is_told_at_the_end = trace.info.source == Some(Source::Relay) && found.whole.lost_events != Some(0);
        if is_told_at_the_end || trace.info.order == OrderKey::Sequence || found.landmark_bytes().is_empty() {
            return None;
        }
        let Some(landmarks) = found.landmarks().filter(|files| files.len() == trace.streams.len()) else {
            self.tell(format_args!("makes no sense: not used"));
            self.found = None;
            return None;
        };
        let bounds = resolve(found.whole.first);
        for (stream, landmarks) in trace.streams.iter_mut().zip(&landmarks) {
            stream.restrict_to(landmarks, bounds);
        }
        Some(Narrowed { first: found.whole.first, bounds, completeness: found.whole.completeness() })
    }

    /// Whether what was read of a narrowed trace was good. If not, its files are not what they were, and nobody noticed.
    pub(crate) fn was_good(&mut self, trace: &Trace) -> bool {
        let is_good = trace.streams.iter().all(|stream| stream.report().verdict <= Verdict::Lossy);
        if is_good {
            let read: u64 = trace.streams.iter().map(CpuStream::bytes_read).sum();
            self.tell(format_args!("{read} of {} bytes had to be read", self.identity.bytes()));
        } else {
            self.tell_of_damage();
            self.found = None;
        }
        is_good
    }

    /// What it says holds no more, though the files have the same times.
    fn tell_of_damage(&self) {
        self.tell(format_args!("the trace is damaged where it was good: removed"));
        remove(&self.dir);
    }

    /// Has the streams of a trace, before anything is read of them, keep what the index needs of them.
    pub(crate) fn prepare(&self, trace: &mut Trace) {
        if self.found.is_none() && trace.info.order == OrderKey::Time {
            trace.streams.iter_mut().for_each(CpuStream::keep_seek_index);
        }
    }

    /// Whether a pass that answers `asked` would add to it.
    pub(crate) fn lacks(&self, asked: Question) -> bool {
        self.found.as_ref().is_none_or(|found| found.answer(asked).is_none())
    }

    /// Keeps what a pass over the whole trace came to; with the answer to a question, where it was one.
    pub(crate) fn keep(&self, trace: &Trace, completeness: &Completeness, answer: Option<(Question, &Order, &Paired)>) {
        let room = self.budget.left(0);
        let answer = answer.map(|(question, order, paired)| {
            let has_room = paired.live.len() as u64 * MEMORY_PER_OBJECT <= room;
            let lists_live = question.lists_live && paired.live.len() <= answer::MOST_LIVE && has_room;
            (Question { lists_live, ..question }, order, paired)
        });
        // Facts of a file with an end and no damage are never worse.
        let mut facts = trace.streams.iter().map(CpuStream::report).chain(&trace.metadata.report);
        if completeness.verdict > Verdict::Lossy || facts.any(|facts| facts.verdict > Verdict::Lossy) {
            if self.found.is_some() {
                self.tell_of_damage();
            }
            return;
        }
        if self.found.is_some() && !answer.is_some_and(|(question, ..)| self.lacks(question)) {
            return;
        }
        let rows = answer.map_or(0, |(.., paired)| paired.rows.len() as u64);
        if rows * MEMORY_PER_ROW > room {
            return self.tell(format_args!("not written: --max-memory leaves no room for its {rows} rows"));
        }
        match self.write(trace, completeness, answer) {
            Ok(len) => self.tell(format_args!("written, {len} bytes")),
            Err(reason) => self.tell(format_args!("not written: {reason}")),
        }
    }

    fn write(
        &self,
        trace: &Trace,
        completeness: &Completeness,
        answer: Option<(Question, &Order, &Paired)>,
    ) -> Result<usize, String> {
        if !trust::is_ours(self.owner) {
            return Err("the trace belongs to another user".to_owned());
        }
        if !self.is_settled || !self.identity.is_still_that_of(trace) {
            return Err("the trace was changed a moment ago".to_owned());
        }
        let answer =
            answer.map(|(question, order, paired)| (question, answer::write(question, order, paired, &trace.names)));
        let old = self.found.iter().flat_map(Content::answers);
        let old = old.filter(|(question, _)| answer.as_ref().is_none_or(|(new, _)| !new.covers(*question)));
        let answers = old.chain(answer.iter().map(|(question, bytes)| (*question, bytes.as_slice())));
        let bytes = match &self.found {
            Some(found) => content::write(&self.identity, &found.whole, found.landmark_bytes(), answers),
            None => {
                let facts = || trace.streams.iter().map(CpuStream::report);
                let whole = Whole {
                    is_lossy: completeness.verdict == Verdict::Lossy,
                    lost_events: completeness.lost_events,
                    gaps: completeness.gaps,
                    lost_before: completeness.lost_before,
                    first: facts().filter_map(|facts| facts.first).min().unwrap_or(0),
                    last: facts().filter_map(|facts| facts.last).max().unwrap_or(0),
                };
                let landmarks = content::landmarks(trace.streams.iter().map(CpuStream::seek_index));
                content::write(&self.identity, &whole, &landmarks, answers)
            }
        };
        if bytes.len() as u64 > MOST_BYTES {
            return Err(format!("it would have {} bytes", bytes.len()));
        }
        let replaced = self.dir.create(OsStr::new(NAME), ".new", 0o600).and_then(|new| {
            new.file().write_all(&bytes)?;
            new.put()
        });
        replaced.map_err(|error| error.to_string())?;
        Ok(bytes.len())
    }
}

/// A trace of which only a part is read.
pub(crate) struct Narrowed {
    /// Order key of the first event of all.
    pub(crate) first: u64,
    /// Order keys from and to.
    pub(crate) bounds: (u64, u64),
    pub(crate) completeness: Completeness,
}

/// Removes the index in a directory whose files have just been changed.
pub fn remove(dir: &Directory) {
    let _ = dir.remove(OsStr::new(NAME));
}

/// The bytes of an index of a trace whose files belong to `owner`; `None` where there is none. The error says why it is not used.
fn read(dir: &Directory, owner: Option<u32>, budget: Budget) -> Result<Option<Vec<u8>>, String> {
    let file = match dir.open_file(OsStr::new(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err("is not a regular file".to_owned()),
        opened => opened.map_err(|error| error.to_string())?,
    };
    let len = trust::check(&file, owner)?;
    if len > MOST_BYTES || len.saturating_mul(MEMORY_PER_BYTE) > budget.left(0) {
        return Err(format!("has {len} bytes"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    file.take(len).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(Some(bytes))
}
