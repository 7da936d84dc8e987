//! The index next to a large trace, `report.index`: results of earlier passes over all of it, so that the next report starts at once.
//!
//! The index is a cache. One that does not fit the files, or is damaged in any way, counts as missing and is written anew.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

mod answer;
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

pub(crate) use answer::AnalysisRequest;
use content::{Content, Whole};
use identity::Identity;

use crate::account::completeness::Completeness;
use crate::account::completeness::MergeStats;
use crate::memory::budget::Budget;
use crate::pairing::result::PairingResult;
use crate::progress::Notes;
use crate::whole_file::Directory;

/// Name of the index in the trace's directory.
pub const NAME: &str = "report.index";
/// Size limit of an index, in bytes: a larger one is neither written nor read.
const MAX_BYTES: u64 = 256 << 20;
/// Memory for each byte of an index while it is read, in bytes: a row of small numbers has 20 bytes there and 400 in memory.
const MEMORY_PER_BYTE: u64 = 20;
/// Memory for each live object and for each row while they are written, in bytes.
const MEMORY_PER_OBJECT: u64 = 48;
const MEMORY_PER_ROW: u64 = 1024;

/// Conditions for an index.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Size of a trace, in bytes, from which an index pays.
    pub(crate) from: u64,
    pub(crate) is_wanted: bool,
    /// Receiver of notes on the index.
    pub(crate) notes: Notes,
}

/// The index of a trace, as it was when the trace was opened.
#[derive(Debug)]
pub(crate) struct Index {
    dir: Arc<Directory>,
    settings: Settings,
    budget: Budget,
    /// The files before any event was read.
    identity: Identity,
    /// User id of all of the trace's files.
    owner: Option<u32>,
    /// True if a later change of the files would be seen.
    is_settled: bool,
    found: Option<Content>,
}

impl Index {
    /// The index of a trace just opened; `None` for a trace that can have none: an input of another tool, or a small one.
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
                Some(found) if *found.identity() != index.identity => {
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

    /// True where an earlier pass over the whole trace found no call stacks.
    pub(crate) fn knows_of_no_stacks(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.whole().completeness.stacks == 0)
    }

    /// Order key of the last event of all.
    pub(crate) fn last_key(&self) -> Option<u64> {
        Some(self.found.as_ref()?.whole().last)
    }

    /// The result that a pass over the whole trace would have for this request.
    pub(crate) fn answer(
        &mut self,
        request: AnalysisRequest,
        names: &mut Names,
    ) -> Option<(MergeStats, PairingResult, Completeness)> {
        let found = self.found.as_ref()?;
        let (stored, bytes) = found.answer(request)?;
        let Some((order, paired)) = answer::read(stored, bytes, request.lists_live, names) else {
            self.tell(format_args!("makes no sense: not used"));
            self.found = None;
            return None;
        };
        let completeness = found.whole().completeness.clone();
        self.tell(format_args!("the figures are taken from it"));
        Some((order, paired, completeness))
    }

    /// Restricts the streams of the trace to a window that `resolve` finds from the first order key of all. Returns that key, the
    /// window and the completeness of the whole trace; `None`: all must be read.
    pub(crate) fn restrict(
        &mut self,
        trace: &mut Trace,
        resolve: impl FnOnce(u64) -> (u64, u64),
    ) -> Option<Restricted> {
        let found = self.found.as_ref()?;
        let whole = found.whole().clone();
        // Sequence holes and dropped relay records are known only after the whole trace was read.
        let is_told_at_the_end = trace.info.source == Some(Source::Relay) && whole.completeness.lost_events != Some(0);
        if is_told_at_the_end || trace.info.order == OrderKey::Sequence || found.landmark_bytes().is_empty() {
            return None;
        }
        let Some(landmarks) = found.landmarks().filter(|files| files.len() == trace.streams.len()) else {
            self.tell(format_args!("makes no sense: not used"));
            self.found = None;
            return None;
        };
        let bounds = resolve(whole.first);
        for (stream, landmarks) in trace.streams.iter_mut().zip(&landmarks) {
            stream.restrict_to(landmarks, bounds);
        }
        Some(Restricted { first: whole.first, bounds, completeness: whole.completeness })
    }

    /// True if no damage was read in a restricted trace. Damage means that the files changed without a new time.
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

    /// Removes an index that holds no more, though the files have the same times.
    fn tell_of_damage(&self) {
        self.tell(format_args!("the trace is damaged where it was good: removed"));
        remove(&self.dir);
    }

    /// Lets the streams of a trace keep seek points for the index; called before anything is read.
    pub(crate) fn prepare(&self, trace: &mut Trace) {
        if self.found.is_none() && trace.info.order == OrderKey::Time {
            trace.streams.iter_mut().for_each(CpuStream::keep_seek_index);
        }
    }

    /// True if the index has no result for `request`.
    pub(crate) fn misses(&self, request: AnalysisRequest) -> bool {
        self.found.as_ref().is_none_or(|found| found.answer(request).is_none())
    }

    /// Keeps the facts of a pass over the whole trace, and its result if it had a request.
    pub(crate) fn keep(
        &self,
        trace: &Trace,
        completeness: &Completeness,
        answer: Option<(AnalysisRequest, &MergeStats, &PairingResult)>,
    ) {
        let room = self.budget.left(0);
        let answer =
            answer.and_then(|(request, order, paired)| Some((request.kept(completeness.stacks > 0)?, order, paired)));
        let answer = answer.map(|(request, order, paired)| {
            let has_room = (paired.live.len() as u64).saturating_mul(MEMORY_PER_OBJECT) <= room;
            let lists_live = request.lists_live && paired.live.len() <= answer::MAX_LIVE && has_room;
            (AnalysisRequest { lists_live, ..request }, order, paired)
        });
        // Facts of a file with an end and no damage are never worse.
        let mut facts = trace.streams.iter().map(CpuStream::report).chain(&trace.metadata.report);
        if completeness.verdict > Verdict::Lossy || facts.any(|facts| facts.verdict > Verdict::Lossy) {
            if self.found.is_some() {
                self.tell_of_damage();
            }
            return;
        }
        if self.found.is_some() && !answer.is_some_and(|(request, ..)| self.misses(request)) {
            return;
        }
        let rows = answer.map_or(0, |(.., paired)| paired.rows.len() as u64);
        if rows.saturating_mul(MEMORY_PER_ROW) > room {
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
        answer: Option<(AnalysisRequest, &MergeStats, &PairingResult)>,
    ) -> Result<usize, String> {
        if !trust::is_ours(self.owner) {
            return Err("the trace belongs to another user".to_owned());
        }
        if !self.is_settled || !self.identity.is_still_that_of(trace) {
            return Err("the trace was changed a moment ago".to_owned());
        }
        let answer = answer
            .map(|(request, order, paired)| Ok((request, answer::write(request, order, paired, &trace.names)?)))
            .transpose()
            .map_err(|error: postcard::Error| error.to_string())?;
        let old = self.found.iter().flat_map(Content::answers);
        let old = old.filter(|(request, _)| answer.as_ref().is_none_or(|(new, _)| !new.covers(*request)));
        let answers = old.chain(answer.iter().map(|(request, bytes)| (*request, bytes.as_slice())));
        let bytes = match &self.found {
            Some(found) => content::write(&self.identity, found.whole(), found.landmark_bytes(), answers),
            None => {
                let facts = || trace.streams.iter().map(CpuStream::report);
                let whole = Whole {
                    completeness: completeness.clone(),
                    first: facts().filter_map(|facts| facts.first).min().unwrap_or(0),
                    last: facts().filter_map(|facts| facts.last).max().unwrap_or(0),
                };
                let landmarks = content::landmarks(trace.streams.iter().map(CpuStream::seek_index));
                landmarks.and_then(|landmarks| content::write(&self.identity, &whole, &landmarks, answers))
            }
        };
        let bytes = bytes.map_err(|error| error.to_string())?;
        if bytes.len() as u64 > MAX_BYTES {
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

/// A trace restricted to a window.
pub(crate) struct Restricted {
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
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory) => {
            return Err("is not a regular file".to_owned());
        }
        opened => opened.map_err(|error| error.to_string())?,
    };
    let len = trust::check(&file, owner)?;
    if len > MAX_BYTES || len.saturating_mul(MEMORY_PER_BYTE) > budget.left(0) {
        return Err(format!("has {len} bytes"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    file.take(len).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;
    use std::time::Duration;

    use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
    use kmemtrace_tests::recording;

    use super::*;
    use crate::Query;
    use crate::account::grouping::Grouping;

    const SITES: AnalysisRequest =
        AnalysisRequest { grouping: Grouping::SITE, matrix: false, lists_live: false, shows_own: false, births: false };

    fn settings() -> Settings {
        Settings { from: 0, is_wanted: true, notes: Notes::default() }
    }

    /// Runs the query of a view, with an index.
    fn report(dir: &recording::Directory, views: &[&str]) {
        let query = match views[0] {
            "live" => Query::by_site().with_live_objects(true),
            "summary" => Query::by_kind(),
            _ => Query::by_site(),
        };
        query.index(0).run(&mut Trace::open(&[dir.path().to_owned()]).unwrap()).unwrap();
    }

    /// The index of the recording in `dir`, and the recording.
    fn index(dir: &recording::Directory, settings: Settings) -> (Option<Index>, Trace) {
        let inputs = [dir.path().to_path_buf()];
        let trace = Trace::open(&inputs).unwrap();
        (Index::of(&trace, settings, Budget::new(None)), trace)
    }

    fn recorded(seed: u64, options: &Options) -> recording::Directory {
        let dir = recording::Directory::new(&trace_dir(&workload(seed, options), seed));
        // Files that were written a moment ago are not trusted to stay.
        thread::sleep(Duration::from_millis(60));
        dir
    }

    /// A report of call-sites leaves an index that knows the rest of what it saw: sums, pairs of CPUs, the last key.
    #[test]
    fn a_report_leaves_its_answer_to_the_next() {
        let dir = recorded(1, &Options::plain(Shape::plain(), 2, 300));
        let (found, mut trace) = index(&dir, settings());
        let mut found = found.unwrap();
        assert!(found.last_key().is_none() && found.misses(SITES));
        assert!(found.answer(SITES, &mut trace.names).is_none());
        report(&dir, &["sites"]);
        let (found, mut trace) = index(&dir, settings());
        let mut found = found.unwrap();
        let (order, paired, completeness) = found.answer(SITES, &mut trace.names).unwrap();
        assert!(order.events > 250 && !paired.rows.is_empty());
        assert_eq!(completeness.verdict, Verdict::Complete);
        assert_eq!((found.last_key(), order.first.is_some()), (order.last, true));
        for (grouping, matrix, misses) in
            [(Grouping::SITE, true, false), (Grouping::KIND, false, false), (Grouping::CACHE, false, true)]
        {
            let request = AnalysisRequest { grouping, matrix, ..SITES };
            assert_eq!(found.misses(request), misses, "{request:?}");
            assert_eq!(found.answer(request, &mut trace.names).is_none(), misses, "{request:?}");
        }
        let live = AnalysisRequest { lists_live: true, ..SITES };
        assert!(found.misses(live));
        report(&dir, &["live"]);
        let (found, mut trace) = index(&dir, settings());
        let (_, paired, _) = found.unwrap().answer(live, &mut trace.names).unwrap();
        assert!(!paired.live.is_empty());
        // A request without them gets no objects.
        let (found, mut trace) = index(&dir, settings());
        let (_, paired, _) = found.unwrap().answer(SITES, &mut trace.names).unwrap();
        assert!(paired.live.is_empty() && !paired.rows.is_empty());
    }

    /// A window is read from the index's landmarks, and what they tell of the whole trace is kept.
    #[test]
    fn a_window_is_narrowed_where_the_index_knows_the_file() {
        let dir = recorded(2, &Options::plain(Shape::plain(), 2, 300));
        report(&dir, &["summary"]);
        let (found, mut trace) = index(&dir, settings());
        let mut found = found.unwrap();
        let mut names = Names::new();
        let (order, ..) = found.answer(AnalysisRequest { grouping: Grouping::KIND, ..SITES }, &mut names).unwrap();
        let last = order.last.unwrap();
        let restricted = found.restrict(&mut trace, |first| (first + 1, last - 1)).unwrap();
        assert_eq!(Some(restricted.first), order.first);
        assert_eq!(restricted.bounds, (restricted.first + 1, last - 1));
        assert_eq!(restricted.completeness.gaps, 0);
        assert!(found.was_good(&trace));
    }

    /// Small traces, those with a file missing, and readers that want none have no index.
    #[test]
    fn only_a_whole_and_large_recording_has_an_index() {
        let dir = recorded(3, &Options::plain(Shape::plain(), 2, 100));
        let (found, trace) = index(&dir, settings());
        let bytes = found.unwrap().identity.bytes();
        assert!(index(&dir, Settings { from: bytes, ..settings() }).0.is_some());
        assert!(index(&dir, Settings { from: bytes + 1, ..settings() }).0.is_none());
        assert!(index(&dir, Settings { is_wanted: false, ..settings() }).0.is_none());
        let mut twice = trace;
        twice.inputs.push(dir.path().to_owned());
        assert!(Index::of(&twice, settings(), Budget::new(None)).is_none());
        let without = Options { missing: vec![1], ..Options::plain(Shape::plain(), 2, 100) };
        assert!(index(&recorded(3, &without), settings()).0.is_none());
        let cut = recorded(3, &Options { cut: vec![1], ..Options::plain(Shape::plain(), 2, 100) });
        report(&cut, &["sites"]);
        assert!(!cut.file(NAME).exists());
    }

    /// An index that is damaged, or of files that have changed since, is not used, and written anew.
    #[test]
    fn an_index_that_does_not_fit_is_written_anew() {
        let dir = recorded(4, &Options::plain(Shape::plain(), 2, 100));
        report(&dir, &["sites"]);
        let good = fs::read(dir.file(NAME)).unwrap();
        let mut damaged = good.clone();
        damaged[good.len() / 2] ^= 1;
        fs::write(dir.file(NAME), damaged).unwrap();
        assert!(index(&dir, settings()).0.unwrap().found.is_none());
        report(&dir, &["sites"]);
        assert!(index(&dir, settings()).0.unwrap().found.is_some());
        let file = trace_dir(&workload(4, &Options::plain(Shape::plain(), 2, 100)), 4).remove(0).0;
        dir.write("copy", &fs::read(dir.file(&file)).unwrap());
        fs::rename(dir.file("copy"), dir.file(&file)).unwrap();
        assert!(index(&dir, settings()).0.unwrap().found.is_none());
        thread::sleep(Duration::from_millis(60));
        report(&dir, &["sites"]);
        assert!(index(&dir, settings()).0.unwrap().found.is_some());
    }
}
