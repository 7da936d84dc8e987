//! Content of an index; `abi/FORMAT.md` describes it byte by byte.

use std::ops::Range;

use kmemtrace_abi::disk::block::crc32c;
use kmemtrace_abi::disk::seek_index::{SeekIndex, SeekPoint};
use kmemtrace_abi::event::{Gap, GapCause};
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::kernel::unknown::UnknownEvents;

use super::answer::AnalysisRequest;
use super::bytes::{Reader, Writer};
use super::identity::Identity;
use crate::account::completeness::Completeness;

const MAGIC: [u8; 8] = *b"\x89kmIDX\r\n";
/// Version, raised whenever the bytes change, or the result of a pass.
const VERSION: u32 = 9;
/// Bytes before the checked ones.
const UNCHECKED: usize = 12;
/// Limit of credible counts of a file.
const MAX_COUNTED: u64 = 1 << 56;

/// Facts of the whole trace, whatever the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    /// Complete or lossy: others have no index.
    pub(super) is_lossy: bool,
    pub(super) lost_events: Option<u64>,
    pub(super) gaps: u64,
    pub(super) lost_before: Option<u64>,
    /// Names and numbers of events that may concern objects and are not known.
    pub(super) unknown: Vec<(Box<[u8]>, u64)>,
    /// Order key of the first event of all; 0 where there is none.
    pub(super) first: u64,
    /// Order key of the last event; 0 where there is none.
    pub(super) last: u64,
    /// Call stacks, those that belong to no event, and the different ones.
    pub(super) stacks: [u64; 3],
}

impl Whole {
    pub(super) fn completeness(&self) -> Completeness {
        let [stacks, stacks_unmatched, stacks_distinct] = self.stacks;
        let mut unknown = UnknownEvents::default();
        self.unknown.iter().for_each(|(name, events)| unknown.add_named(name, *events));
        Completeness {
            verdict: if self.is_lossy { Verdict::Lossy } else { Verdict::Complete },
            lost_events: self.lost_events,
            gaps: self.gaps,
            lost_before: self.lost_before,
            truncated_files: Vec::new(),
            missing_cpus: Vec::new(),
            inferred_frees: Some(0),
            frees_without_alloc: Some(0),
            unknown,
            stacks,
            stacks_unmatched,
            stacks_distinct,
        }
    }
}

/// An index that was read. Its larger parts stay bytes until a caller needs them.
#[derive(Debug)]
pub(super) struct Content {
    bytes: Vec<u8>,
    pub(super) identity: Identity,
    pub(super) whole: Whole,
    landmarks: Range<usize>,
    answers: Vec<(AnalysisRequest, Range<usize>)>,
}

impl Content {
    /// The index in `bytes`; `None` where that is none, a damaged one, or one of another version.
    pub(super) fn read(bytes: Vec<u8>) -> Option<Content> {
        let mut from = Reader(&bytes);
        let (magic, checksum) = (from.bytes()?, from.u32()?);
        if magic != MAGIC || crc32c(from.0) != checksum {
            return None;
        }
        if from.u32()? != VERSION || from.text()? != env!("CARGO_PKG_VERSION").as_bytes() {
            return None;
        }
        let identity = Identity::read(&mut from)?;
        let whole = Whole {
            is_lossy: from.bool()?,
            lost_events: from.maybe()?,
            gaps: from.u64()?,
            lost_before: from.maybe()?,
            unknown: from.list(|from| Some((from.text()?.into(), from.u64()?)))?,
            first: from.u64()?,
            last: from.u64()?,
            stacks: [from.u64()?, from.u64()?, from.u64()?],
        };
        let part = |from: &mut Reader<'_>| {
            let text = from.text()?;
            let end = bytes.len() - from.0.len();
            Some(end - text.len()..end)
        };
        let landmarks = part(&mut from)?;
        let answers = from.list(|from| Some((AnalysisRequest::read(from)?, part(from)?)))?;
        from.end(())?;
        Some(Content { identity, whole, landmarks, answers, bytes })
    }

    /// The bytes of an answer that has what is asked.
    pub(super) fn answer(&self, asked: AnalysisRequest) -> Option<(AnalysisRequest, &[u8])> {
        self.answers().find(|(request, _)| request.covers(asked))
    }

    pub(super) fn answers(&self) -> impl Iterator<Item = (AnalysisRequest, &[u8])> {
        self.answers.iter().filter_map(|(request, range)| Some((*request, self.bytes.get(range.clone())?)))
    }

    pub(super) fn landmark_bytes(&self) -> &[u8] {
        self.bytes.get(self.landmarks.clone()).unwrap_or_default()
    }

    /// The landmarks of each file; `None` where they are not kept, or do not make sense.
    pub(super) fn landmarks(&self) -> Option<Vec<SeekIndex>> {
        let mut from = Reader(self.landmark_bytes());
        let mut index = 0;
        let files = from.list(|from| {
            index += 1;
            read_landmarks(from, self.identity.size(index - 1))
        })?;
        from.end(files)
    }
}

/// The bytes of an index.
pub(super) fn write<'a>(
    identity: &Identity,
    whole: &Whole,
    landmarks: &[u8],
    answers: impl Iterator<Item = (AnalysisRequest, &'a [u8])>,
) -> Vec<u8> {
    let mut out = Writer(MAGIC.to_vec());
    out.u32(0);
    out.u32(VERSION);
    out.text(env!("CARGO_PKG_VERSION").as_bytes());
    identity.write(&mut out);
    out.bool(whole.is_lossy);
    out.maybe(whole.lost_events);
    out.u64(whole.gaps);
    out.maybe(whole.lost_before);
    out.u64(whole.unknown.len() as u64);
    for (name, events) in &whole.unknown {
        out.text(name);
        out.u64(*events);
    }
    out.u64(whole.first);
    out.u64(whole.last);
    whole.stacks.into_iter().for_each(|stacks| out.u64(stacks));
    out.text(landmarks);
    let answers: Vec<_> = answers.collect();
    out.u64(answers.len() as u64);
    for (request, answer) in answers {
        request.write(&mut out);
        out.text(answer);
    }
    let checksum = crc32c(&out.0[UNCHECKED..]);
    out.0[MAGIC.len()..UNCHECKED].copy_from_slice(&checksum.to_le_bytes());
    out.0
}

/// The bytes of the landmarks of each file; none where not all have them.
pub(super) fn landmarks<'a>(files: impl Iterator<Item = Option<&'a SeekIndex>>) -> Vec<u8> {
    let Some(files) = files.collect::<Option<Vec<_>>>() else { return Vec::new() };
    let mut out = Writer::default();
    out.u64(files.len() as u64);
    for SeekIndex { points, gaps } in files {
        out.u64(points.len() as u64);
        for point in points {
            [point.offset, point.sequence, point.events, point.gaps].into_iter().for_each(|n| out.u64(n));
            out.maybe(point.last);
        }
        out.u64(gaps.len() as u64);
        for gap in gaps {
            out.maybe(gap.from);
            out.maybe(gap.to);
            out.u32(gap.cpu);
            out.maybe(gap.lost);
            out.u8(CAUSES.iter().position(|&cause| cause == gap.cause).unwrap_or(0) as u8);
        }
    }
    out.0
}

const CAUSES: [GapCause; 7] = [
    GapCause::Overrun,
    GapCause::Counters,
    GapCause::Recorder,
    GapCause::Damage,
    GapCause::Cut,
    GapCause::Sequence,
    GapCause::Foreign,
];

/// Reads the landmarks of one file of `size` bytes.
fn read_landmarks(from: &mut Reader<'_>, size: u64) -> Option<SeekIndex> {
    let points = from.list(|from| {
        let (offset, sequence, events, gaps) = (from.u64()?, from.u64()?, from.u64()?, from.u64()?);
        Some(SeekPoint { offset, sequence, events, gaps, last: from.maybe()? })
    })?;
    let gaps = from.list(|from| {
        let (from_key, to, cpu, lost) = (from.maybe()?, from.maybe()?, from.u32()?, from.maybe()?);
        Some(Gap { from: from_key, to, cpu, lost, cause: *CAUSES.get(usize::from(from.u8()?))? })
    })?;
    let is_there = |p: &SeekPoint| {
        p.offset < size && p.sequence < MAX_COUNTED && p.events < MAX_COUNTED && p.gaps <= gaps.len() as u64
    };
    let follows = |(a, b): (&SeekPoint, &SeekPoint)| {
        a.offset < b.offset && a.sequence < b.sequence && a.events <= b.events && a.gaps <= b.gaps && a.last <= b.last
    };
    let fits = points.iter().all(is_there) && points.iter().zip(points.iter().skip(1)).all(follows);
    fits.then_some(SeekIndex { points, gaps })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::grouping::Grouping;

    const SIZE: u64 = 1000;

    fn identity() -> Identity {
        let mut out = Writer::default();
        out.0.extend_from_slice(&[3; 16]);
        out.u64(1);
        out.text(b"cpu0.out");
        [SIZE, 5, 6].into_iter().for_each(|n| out.u64(n));
        out.u128(7);
        out.u128(8);
        Identity::read(&mut Reader(&out.0)).unwrap()
    }

    fn point(n: u64) -> SeekPoint {
        SeekPoint { offset: 10 * n, sequence: n, events: 100 * n, gaps: n / 2, last: n.checked_sub(1) }
    }

    fn known() -> SeekIndex {
        let gap = |n: u64, cause| Gap { from: Some(n), to: None, cpu: n as u32, lost: Some(2 * n), cause };
        SeekIndex {
            points: (0..5).map(point).collect(),
            gaps: (0..).zip(CAUSES).map(|(n, cause)| gap(n, cause)).collect(),
        }
    }

    const WHOLE: Whole = Whole {
        is_lossy: true,
        lost_events: Some(1),
        gaps: 2,
        lost_before: None,
        unknown: Vec::new(),
        first: 3,
        last: 4,
        stacks: [9, 2, 5],
    };

    fn request(grouping: Grouping) -> AnalysisRequest {
        AnalysisRequest { grouping, matrix: false, lists_live: false, shows_own: false }
    }

    fn whole() -> Whole {
        Whole { unknown: vec![(b"kfree_bulk"[..].into(), 7)], ..WHOLE }
    }

    fn written() -> Vec<u8> {
        let answers = [(request(Grouping::CACHE), &b"caches"[..]), (request(Grouping::SITE), b"sites")];
        write(&identity(), &whole(), &landmarks([Some(&known())].into_iter()), answers.into_iter())
    }

    #[test]
    fn an_index_comes_back_from_its_bytes() {
        let content = Content::read(written()).unwrap();
        assert_eq!((content.identity.clone(), content.whole.clone()), (identity(), whole()));
        assert_eq!(content.landmarks(), Some(vec![known()]));
        assert_eq!(content.answers().map(|(_, bytes)| bytes).collect::<Vec<_>>(), [&b"caches"[..], b"sites"]);
        // The first answer that has what is asked, with the request that it answers.
        assert_eq!(content.answer(request(Grouping::SITE)), Some((request(Grouping::SITE), &b"sites"[..])));
        assert_eq!(content.answer(request(Grouping::KIND)), Some((request(Grouping::CACHE), &b"caches"[..])));
        assert_eq!(content.answer(AnalysisRequest { matrix: true, ..request(Grouping::KIND) }), None);
        let completeness = whole().completeness();
        assert_eq!(completeness.unknown.iter().collect::<Vec<_>>(), [(&b"kfree_bulk"[..], 7)]);
        assert_eq!((completeness.verdict, completeness.lost_events, completeness.gaps), (Verdict::Lossy, Some(1), 2));
        let stacks = (completeness.stacks, completeness.stacks_unmatched, completeness.stacks_distinct);
        assert_eq!(stacks, (9, 2, 5));
        let whole = Whole { is_lossy: false, lost_events: None, lost_before: Some(6), ..WHOLE }.completeness();
        assert_eq!((whole.verdict, whole.lost_events, whole.lost_before), (Verdict::Complete, None, Some(6)));
    }

    /// A byte that changed, or is not there, makes the index count as not there.
    #[test]
    fn damage_anywhere_is_seen() {
        let good = written();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            assert!(Content::read(bytes).is_none(), "byte {at}");
            assert!(Content::read(good[..at].to_vec()).is_none(), "{at} bytes");
        }
    }

    /// Places in a file that a reader could not use, or that would have it miss events, are refused.
    #[test]
    fn landmarks_that_make_no_sense_are_refused() {
        let read = |landmarks: &SeekIndex| {
            let bytes = write(&identity(), &WHOLE, &super::landmarks([Some(landmarks)].into_iter()), [].into_iter());
            Content::read(bytes).unwrap().landmarks()
        };
        let spoil = |change: &dyn Fn(&mut Vec<SeekPoint>)| {
            let mut landmarks = known();
            change(&mut landmarks.points);
            let found = read(&landmarks);
            found == Some(vec![landmarks])
        };
        assert!(spoil(&|_| ()));
        assert!(spoil(&Vec::clear));
        // Within the file, and counted as no file could.
        assert!(spoil(&|points| points[4].offset = SIZE - 1));
        assert!(!spoil(&|points| points[4].offset = SIZE));
        assert!(spoil(&|points| points[4].sequence = MAX_COUNTED - 1));
        assert!(!spoil(&|points| points[4].sequence = MAX_COUNTED));
        assert!(!spoil(&|points| points[4].events = MAX_COUNTED));
        assert!(spoil(&|points| points[4].gaps = CAUSES.len() as u64));
        assert!(!spoil(&|points| points[4].gaps = CAUSES.len() as u64 + 1));
        // In the order of the file.
        assert!(!spoil(&|points| points[2].offset = points[1].offset));
        assert!(!spoil(&|points| points[2].sequence = points[1].sequence));
        assert!(spoil(&|points| points[2].events = points[1].events));
        assert!(!spoil(&|points| points[2].events = points[1].events - 1));
        assert!(!spoil(&|points| points[2].gaps = 3));
        assert!(spoil(&|points| points[2].last = points[1].last));
        assert!(!spoil(&|points| points[2].last = None));
        // Files of which one has none have none.
        assert_eq!(super::landmarks([Some(&known()), None].into_iter()), Vec::<u8>::new());
        assert_eq!(super::landmarks([].into_iter()), 0u64.to_le_bytes());
    }
}
