//! Layout of an index; `abi/FORMAT.md` describes it.

use std::ops::Range;

use kmemtrace_abi::disk::block::crc32c;
use kmemtrace_abi::disk::seek_index::{SeekIndex, SeekPoint};
use kmemtrace_abi::fault::Verdict;
use serde::{Deserialize, Serialize};

use super::answer::{AnalysisRequest, read_all};
use super::identity::Identity;
use crate::account::completeness::Completeness;

const MAGIC: [u8; 8] = *b"\x89kmIDX\r\n";
/// Version of the layout and of the program. The number is raised whenever the bytes change, or the result of a pass.
const STAMP: (u32, &str) = (14, env!("CARGO_PKG_VERSION"));
/// Limit of credible counts of a file.
const MAX_COUNTED: u64 = 1 << 56;

/// Facts of the whole trace, whatever the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Whole {
    /// Complete or lossy: others have no index.
    pub(super) completeness: Completeness,
    /// Order key of the first event of all; 0 where there is none.
    pub(super) first: u64,
    /// Order key of the last event; 0 where there is none.
    pub(super) last: u64,
}

/// What stands before the parts; ranges count from the first byte of the parts.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    identity: Identity,
    whole: Whole,
    landmarks: Range<usize>,
    answers: Vec<(AnalysisRequest, Range<usize>)>,
}

/// An index that was read. Its larger parts stay bytes until a caller needs them.
#[derive(Debug)]
pub(super) struct Content {
    bytes: Vec<u8>,
    /// Offset of the parts.
    parts: usize,
    header: Header,
}

impl Content {
    /// The index in `bytes`; `None` where that is none, a damaged one, or one of another version.
    pub(super) fn read(bytes: Vec<u8>) -> Option<Content> {
        let (checksum, checked) = bytes.strip_prefix(&MAGIC)?.split_first_chunk()?;
        if crc32c(checked) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let (stamp, rest) = postcard::take_from_bytes::<(u32, &str)>(checked).ok()?;
        if stamp != STAMP {
            return None;
        }
        let (header, parts) = postcard::take_from_bytes::<Header>(rest).ok()?;
        let is_there = |range: &Range<usize>| parts.get(range.clone()).is_some();
        let fits = is_there(&header.landmarks) && header.answers.iter().all(|(_, range)| is_there(range));
        let parts = bytes.len().checked_sub(parts.len())?;
        (fits && header.whole.completeness.verdict <= Verdict::Lossy).then_some(Content { bytes, parts, header })
    }

    fn part(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(self.parts..).and_then(|parts| parts.get(range.clone())).unwrap_or_default()
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.header.identity
    }

    pub(super) fn whole(&self) -> &Whole {
        &self.header.whole
    }

    /// The bytes of an answer that has what is asked.
    pub(super) fn answer(&self, asked: AnalysisRequest) -> Option<(AnalysisRequest, &[u8])> {
        self.answers().find(|(request, _)| request.covers(asked))
    }

    pub(super) fn answers(&self) -> impl Iterator<Item = (AnalysisRequest, &[u8])> {
        self.header.answers.iter().map(|(request, range)| (*request, self.part(range)))
    }

    pub(super) fn landmark_bytes(&self) -> &[u8] {
        self.part(&self.header.landmarks)
    }

    /// The landmarks of each file; `None` where they are not kept, or do not make sense.
    pub(super) fn landmarks(&self) -> Option<Vec<SeekIndex>> {
        let files: Vec<SeekIndex> = read_all(self.landmark_bytes())?;
        let mut numbered = files.iter().enumerate();
        numbered.all(|(number, file)| is_possible(file, self.identity().size(number))).then_some(files)
    }
}

/// The bytes of an index.
pub(super) fn write<'a>(
    identity: &Identity,
    whole: &Whole,
    landmarks: &[u8],
    answers: impl Iterator<Item = (AnalysisRequest, &'a [u8])>,
) -> postcard::Result<Vec<u8>> {
    let mut parts = landmarks.to_vec();
    let mut add = |(request, answer): (AnalysisRequest, &[u8])| {
        let begin = parts.len();
        parts.extend_from_slice(answer);
        (request, begin..parts.len())
    };
    let answers = answers.map(&mut add).collect();
    let header = Header { identity: identity.clone(), whole: whole.clone(), landmarks: 0..landmarks.len(), answers };
    let checked = [postcard::to_allocvec(&(STAMP, header))?, parts].concat();
    Ok([&MAGIC[..], &crc32c(&checked).to_le_bytes(), &checked].concat())
}

/// The bytes of the landmarks of each file; none where not all have them.
pub(super) fn landmarks<'a>(files: impl Iterator<Item = Option<&'a SeekIndex>>) -> postcard::Result<Vec<u8>> {
    files.collect::<Option<Vec<_>>>().map_or(Ok(Vec::new()), |files| postcard::to_allocvec(&files))
}

/// True for landmarks that a file of `size` bytes may have: a reader could use the others not, or would miss events.
fn is_possible(SeekIndex { points, gaps }: &SeekIndex, size: u64) -> bool {
    let is_there = |p: &SeekPoint| {
        p.offset < size && p.sequence < MAX_COUNTED && p.events < MAX_COUNTED && p.gaps <= gaps.len() as u64
    };
    let follows = |(a, b): (&SeekPoint, &SeekPoint)| {
        a.offset < b.offset && a.sequence < b.sequence && a.events <= b.events && a.gaps <= b.gaps && a.last <= b.last
    };
    points.iter().all(is_there) && points.iter().zip(points.iter().skip(1)).all(follows)
}

#[cfg(test)]
mod tests {
    use kmemtrace_abi::event::{Gap, GapCause};
    use kmemtrace_abi::kernel::unknown::UnknownEvents;

    use super::*;
    use crate::account::grouping::Grouping;

    const SIZE: u64 = 1000;

    fn point(n: u64) -> SeekPoint {
        SeekPoint { offset: 10 * n, sequence: n, events: 100 * n, gaps: n / 2, last: n.checked_sub(1) }
    }

    fn known() -> SeekIndex {
        let gap = |n: u64| Gap { from: Some(n), to: None, cpu: n as u32, lost: Some(2 * n), cause: GapCause::Cut };
        SeekIndex { points: (0..5).map(point).collect(), gaps: (0..7).map(gap).collect() }
    }

    fn whole(verdict: Verdict) -> Whole {
        let mut unknown = UnknownEvents::default();
        unknown.add_named(b"kfree_bulk", 7);
        let completeness = Completeness {
            verdict,
            lost_events: Some(1),
            gaps: 2,
            lost_before: None,
            truncated_files: Vec::new(),
            missing_cpus: Vec::new(),
            inferred_frees: Some(0),
            frees_without_alloc: Some(0),
            skipped: None,
            unknown,
            stacks: 9,
            stacks_unmatched: 2,
            stacks_distinct: 5,
        };
        Whole { completeness, first: 3, last: 4 }
    }

    fn request(grouping: Grouping) -> AnalysisRequest {
        AnalysisRequest { grouping, matrix: false, lists_live: false, shows_own: false, births: false }
    }

    fn written(verdict: Verdict, files: &[Option<&SeekIndex>]) -> Vec<u8> {
        let answers = [(request(Grouping::CACHE), &b"caches"[..]), (request(Grouping::SITE), b"sites")];
        let landmarks = landmarks(files.iter().copied()).unwrap();
        write(&Identity::of_one_file(SIZE), &whole(verdict), &landmarks, answers.into_iter()).unwrap()
    }

    #[test]
    fn an_index_comes_back_from_its_bytes() {
        let content = Content::read(written(Verdict::Lossy, &[Some(&known())])).unwrap();
        assert_eq!(*content.identity(), Identity::of_one_file(SIZE));
        assert_eq!(format!("{:?}", content.whole()), format!("{:?}", whole(Verdict::Lossy)));
        assert_eq!(content.landmarks(), Some(vec![known()]));
        assert_eq!(content.answers().map(|(_, bytes)| bytes).collect::<Vec<_>>(), [&b"caches"[..], b"sites"]);
        // The first answer that has what is asked, with the request that it answers.
        assert_eq!(content.answer(request(Grouping::SITE)), Some((request(Grouping::SITE), &b"sites"[..])));
        assert_eq!(content.answer(request(Grouping::KIND)), Some((request(Grouping::CACHE), &b"caches"[..])));
        assert_eq!(content.answer(AnalysisRequest { matrix: true, ..request(Grouping::KIND) }), None);
        assert!(Content::read(written(Verdict::Truncated, &[])).is_none());
    }

    /// A byte that changed, or is not there, makes the index count as not there.
    #[test]
    fn damage_anywhere_is_seen() {
        let good = written(Verdict::Complete, &[Some(&known())]);
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            assert!(Content::read(bytes).is_none(), "byte {at}");
            assert!(Content::read(good[..at].to_vec()).is_none(), "{at} bytes");
        }
    }

    /// A right checksum over any bytes is no reason to trust them: lengths and ranges beyond the file are refused.
    #[test]
    fn forged_bytes_are_refused() {
        let good = written(Verdict::Complete, &[Some(&known())]);
        for at in MAGIC.len() + 4..good.len() {
            for byte in [0, 0x7f, 0xff] {
                let mut checked = good[MAGIC.len() + 4..].to_vec();
                checked[at - MAGIC.len() - 4] = byte;
                let forged = [&MAGIC[..], &crc32c(&checked).to_le_bytes(), &checked].concat();
                let Some(content) = Content::read(forged) else { continue };
                assert!(content.answers().all(|(_, answer)| answer.len() < good.len()), "byte {at}");
                content.landmarks();
            }
        }
        assert_eq!(read_all::<Vec<u64>>(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0]), None);
        assert_eq!(read_all::<Vec<u64>>(&[1, 7, 0]), None);
    }

    /// Places in a file that a reader could not use, or that would have it miss events, are refused.
    #[test]
    fn landmarks_that_make_no_sense_are_refused() {
        let spoil = |change: &dyn Fn(&mut Vec<SeekPoint>)| {
            let mut landmarks = known();
            change(&mut landmarks.points);
            let found = Content::read(written(Verdict::Complete, &[Some(&landmarks)])).unwrap().landmarks();
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
        assert!(spoil(&|points| points[4].gaps = 7));
        assert!(!spoil(&|points| points[4].gaps = 8));
        // In the order of the file.
        assert!(!spoil(&|points| points[2].offset = points[1].offset));
        assert!(!spoil(&|points| points[2].sequence = points[1].sequence));
        assert!(spoil(&|points| points[2].events = points[1].events));
        assert!(!spoil(&|points| points[2].events = points[1].events - 1));
        assert!(!spoil(&|points| points[2].gaps = 3));
        assert!(spoil(&|points| points[2].last = points[1].last));
        assert!(!spoil(&|points| points[2].last = None));
        // Files of which one has none have none.
        let none = Content::read(written(Verdict::Complete, &[Some(&known()), None])).unwrap();
        assert!(none.landmark_bytes().is_empty() && none.landmarks().is_none());
    }
}
