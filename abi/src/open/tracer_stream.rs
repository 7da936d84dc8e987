//! A stream of the ftrace tracer "kmemtrace" of Linux 2.6.29 to 2.6.31: the records of all CPUs, by time.
//!
//! A first pass finds the CPUs, and gaps where bytes are no records; events come in the order of the stream.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::first_pass::{GapsFirst, add_fault, add_gap};
use super::listing::io_error;
use crate::disk::blocks::Window;
use crate::disk::part::Part;
use crate::event::{Action, ByKind, Event, Gap, GapCause, Names, StreamItem};
use crate::fault::{Code, Fault};
use crate::kernel::relay::TYPES;
use crate::kernel::tracer_stream::{Layout, Parsed, TracerRecord, detect};
use crate::stream::report::Source;
use crate::stream::source::{EventSource, SourceEnd};
use crate::trace::{InputCapabilities, InputKind, OpenError, Trace, TraceInfo};

/// Items handed over at once.
const AT_ONCE: usize = 1024;
/// Bytes that are searched for the next record at once.
const SEARCHED: usize = 128 << 10;

/// A stream, and what the first pass over it has found.
#[derive(Debug)]
pub(super) struct Scanned {
    path: PathBuf,
    file: Arc<File>,
    bytes: u64,
    layout: Layout,
    cpus: BTreeSet<u32>,
    gaps: Vec<Gap>,
    faults: Vec<Fault>,
    /// The last record, if it is cut.
    cut: Option<Fault>,
}

/// What stands next in a stream.
enum Next {
    Record(TracerRecord),
    /// Bytes that are no records, from this offset on.
    Bad(u64),
    /// A record that begins at this offset and is cut.
    Cut(u64),
    End,
}

/// Records, one after the other.
#[derive(Debug)]
struct Records {
    window: Window,
    layout: Layout,
}

impl Records {
    fn new(file: &Arc<File>, bytes: u64, layout: Layout) -> Records {
        Records { window: Window::of_part(Part::range(Arc::clone(file), 0, bytes)), layout }
    }

    fn next(&mut self) -> Next {
        let at = self.window.offset();
        let bytes = self.window.fill(self.layout.longest());
        match self.layout.parse(bytes) {
            Parsed::Record(record, len) => {
                self.window.advance(len);
                Next::Record(record)
            }
            _ if bytes.is_empty() => Next::End,
            Parsed::Short => {
                let len = bytes.len();
                self.window.advance(len);
                Next::Cut(at)
            }
            Parsed::Bad => {
                self.skip();
                Next::Bad(at)
            }
        }
    }

    /// Passes over bytes that are no records.
    fn skip(&mut self) {
        loop {
            let bytes = self.window.fill(SEARCHED);
            let is_at_end = bytes.len() < SEARCHED;
            match self.layout.resume(bytes, is_at_end) {
                Some(offset) => return self.window.advance(offset),
                None if is_at_end => {
                    let len = bytes.len();
                    return self.window.advance(len);
                }
                // Records in a row may straddle what is at hand.
                None => self.window.advance(SEARCHED / 2),
            }
        }
    }
}

/// Reads a stream once; `None` for any other file.
pub(super) fn scan(path: &Path, file: &Arc<File>, sample: &[u8]) -> Result<Option<Scanned>, OpenError> {
    let Some(layout) = detect(sample) else { return Ok(None) };
    let bytes = file.metadata().map_err(io_error(path))?.len();
    let mut found = Scanned {
        path: path.to_owned(),
        file: Arc::clone(file),
        bytes,
        layout,
        cpus: BTreeSet::new(),
        gaps: Vec::new(),
        faults: Vec::new(),
        cut: None,
    };
    let mut records = Records::new(file, bytes, layout);
    let (mut last, mut is_damaged) = (None, false);
    loop {
        match records.next() {
            Next::Record(record) => {
                let at = last.map_or(record.time, |last: u64| last.max(record.time));
                if std::mem::take(&mut is_damaged) {
                    let gap = Gap { from: last, to: Some(at), cpu: record.cpu, lost: None, cause: GapCause::Damage };
                    add_gap(&mut found.gaps, gap);
                }
                last = Some(at);
                found.cpus.insert(record.cpu);
            }
            Next::Bad(offset) => {
                is_damaged = true;
                let message = format!("no record at byte {offset}");
                add_fault(&mut found.faults, Fault { code: Code::BadRelayRecord, offset, block: None, message });
            }
            Next::Cut(offset) => {
                let message = format!("ends inside the record at byte {offset}; every earlier record is whole");
                found.cut = Some(Fault { code: Code::RelayCut, offset, block: None, message });
            }
            Next::End => break,
        }
    }
    if is_damaged {
        let cpu = found.cpus.first().copied().unwrap_or(0);
        add_gap(&mut found.gaps, Gap { from: last, to: None, cpu, lost: None, cause: GapCause::Damage });
    }
    Ok(Some(found))
}

/// Opens a stream that was read once.
pub(super) fn open(scanned: &Arc<Scanned>) -> Result<Trace, OpenError> {
    let records = Records::new(&scanned.file, scanned.bytes, scanned.layout);
    let source =
        StreamSource { scanned: Arc::clone(scanned), records, gaps: GapsFirst::default(), last: 0, has_ended: false };
    let trace = Trace::of_sources(InputKind::Relay.name(), None, vec![Box::new(source)])?;
    let kinds = ByKind::from_fn(|kind| TYPES.iter().any(|of| of.kind == kind));
    let info = TraceInfo {
        input: InputKind::Relay,
        source: Some(Source::Relay),
        capabilities: InputCapabilities { frames: false, ..InputCapabilities::events(kinds) },
        endian: Some(scanned.layout.endian),
        word_bytes: Some(scanned.layout.word_bytes),
        cpus: scanned.cpus.iter().copied().collect(),
        ..trace.info
    };
    Ok(Trace { info, ..trace })
}

/// Events of a stream.
#[derive(Debug)]
struct StreamSource {
    scanned: Arc<Scanned>,
    records: Records,
    gaps: GapsFirst,
    last: u64,
    has_ended: bool,
}

impl EventSource for StreamSource {
    fn cpu(&self) -> u32 {
        self.scanned.cpus.first().copied().unwrap_or(0)
    }

    fn path(&self) -> &Path {
        &self.scanned.path
    }

    fn read(&mut self, names: &mut Names, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
        if self.gaps.hand_over(&self.scanned.gaps, AT_ONCE, items) {
            return Ok(());
        }
        while items.len() < AT_ONCE && !self.has_ended {
            match self.records.next() {
                Next::Record(record) => {
                    // The stream has the order, whatever a CPU's clock says.
                    self.last = self.last.max(record.time);
                    items.push(StreamItem::Event(event(&record, self.last, names)));
                }
                Next::Bad(_) | Next::Cut(_) => {}
                Next::End => self.has_ended = true,
            }
        }
        match self.scanned.cut.clone().filter(|_| items.is_empty()) {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    fn has_several_cpus(&self) -> bool {
        true
    }

    fn may_have_stacks(&self) -> bool {
        false
    }

    fn end(&mut self) -> SourceEnd {
        SourceEnd { faults: self.scanned.faults.clone(), ..SourceEnd::default() }
    }

    fn bytes_read(&self) -> u64 {
        self.records.window.offset()
    }

    fn bytes_to_read(&self) -> u64 {
        self.scanned.bytes
    }
}

fn event(record: &TracerRecord, at: u64, names: &mut Names) -> Event {
    #[expect(clippy::indexing_slicing, reason = "only records of a known type are handed out")]
    let of = TYPES[record.type_id];
    let [alloc, free] = of.events;
    let name = if record.allocation.is_some() { alloc } else { free };
    let event = Event {
        address: record.address,
        call_site: record.call_site,
        action: Action::Free(of.kind),
        ..Event::new(at, record.cpu, names.intern(name.as_bytes()))
    };
    match record.allocation {
        None => event,
        Some(allocation) => Event {
            requested: allocation.requested,
            allocated: allocation.allocated,
            gfp: Some(allocation.gfp),
            node: Some(allocation.node),
            action: Action::Alloc(of.kind),
            failed: record.address == 0,
            ..event
        },
    }
}
