//! A `trace.dat` of a latency tracer: it has the kernel's text in place of sub-buffers, which is read as any text of events.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use super::container::{Buffer, Container, TextPart};
use super::plain::PlainFacts;
use crate::disk::part::Part;
use crate::kernel::format::PageShape;
use crate::open::ftrace_text;
use crate::open::listing::{io_error, no_trace};
use crate::open::options::OpenOptions;
use crate::open::{header, spool};
use crate::stream::report::Source;
use crate::target::Endian;
use crate::trace::{InputKind, OpenError, Trace};

/// Opens the text of a file; what the file tells stands in for options that were not given.
pub(super) fn open(
    path: &Path,
    file: &Arc<File>,
    (container, endian): (Container, Endian),
    part: TextPart,
    options: &OpenOptions,
) -> Result<Trace, OpenError> {
    let facts = PlainFacts::of(&container, &Buffer::default(), None, options);
    let (page_bytes, page_bytes_from) = facts.page_bytes;
    let options = OpenOptions {
        release: options.release.clone().or(facts.kernel),
        clock: options.clock.clone().or(facts.clock),
        page_bytes: options.page_bytes.or(page_bytes),
        ..options.clone()
    };
    let text = Arc::new(copied(file, part, endian).map_err(io_error(path))?);
    let Some(mut texts) = ftrace_text::read(vec![(path.to_owned(), text)], &options)? else {
        return Err(no_trace(path, "holds the text of a latency tracer, and no event was found in it"));
    };
    texts.tell_cpus(container.cpus);
    let mut trace = ftrace_text::open(&Arc::new(texts), &options)?;
    let info = &mut trace.info;
    let target =
        PageShape::parse(&String::from_utf8_lossy(&container.header_page), endian).ok().map(|head| head.target);
    info.endian = Some(endian);
    info.word_bytes = target.map(|target| target.word_bytes);
    info.input = InputKind::TraceDat;
    info.source = Some(Source::Tracefs);
    info.page_bytes_from = page_bytes_from;
    info.arch = facts.machine;
    info.host = facts.host;
    let metadata = &mut trace.metadata;
    metadata.uname = container.uname.into_bytes();
    // Functions that the text names have addresses of their own, which the kernel's symbols do not have.
    if metadata.kallsyms.is_empty() {
        metadata.kallsyms = container.kallsyms;
    }
    for (pid, comm) in header::comms(&container.cmdlines) {
        metadata.comms.entry(pid).or_insert(comm);
    }
    Ok(trace)
}

/// A copy of the text, expanded; of one that is cut, the begin.
fn copied(file: &Arc<File>, part: TextPart, endian: Endian) -> io::Result<File> {
    let TextPart { offset, len, compression } = part;
    let file = Arc::clone(file);
    spool::copy(&mut UpToTheCut(match compression {
        None => Part::range(file, offset, len),
        Some(compression) => Part::chunks(file, offset, len, compression, endian),
    }))
}

/// Reader of a part that may be cut.
struct UpToTheCut(Part);

impl Read for UpToTheCut {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.0.read(bytes) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }
}
