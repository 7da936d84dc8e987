//! The text of the kernel's page_owner as a trace: each block is the allocation of pages that are live, with its stack.
//!
//! The text stands in the order of page frames, so it is read whole and put in the order of its times. Stacks, and the facts that
//! blocks share, are kept once. Where the caller needs counts and sums alone ([`OpenOptions::alike`]), that is all; where ages, a
//! window of time or each page are asked for, a block takes 24 bytes until it is handed over.

mod blocks;
mod text;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use self::blocks::{Blocks, Facts, Held};
use self::text::{BlockLine, Head};
use super::listing::io_error;
use super::options::OpenOptions;
use super::regular;
use super::symbols::{Frame, Symbols, find};
use crate::event::{Action, ByKind, Event, Kind, Names, StreamItem};
use crate::fault::{Code, Fault};
use crate::kernel::decoder::page_bytes;
use crate::listed::{Amounts, Listed};
use crate::owner::{Allocators, Owner, Owners};
use crate::stack::Stacks;
use crate::stream::source::EventSource;
use crate::trace::{InputCapabilities, Metadata, OpenError, PAGE_OWNER, PageBytesFrom, Trace};

/// Greatest length of a line.
const MAX_LINE: u64 = 64 << 10;
/// Frames of a stack; the kernel keeps 16 (`PAGE_OWNER_STACK_DEPTH` of `mm/page_owner.c`).
const MAX_FRAMES: usize = 256;
/// Bytes of a page where the text is of another machine: the text does not tell.
const USUAL_PAGE_BYTES: u64 = 4096;
/// Events handed over at once.
const AT_ONCE: usize = 1024;
/// Function in the stack that the kernel makes up for pages that were allocated before page_owner began.
const EARLY: &[u8] = b"register_early_stack";
/// Function that takes pages for `vmalloc`, if a function called it that allocates pages.
const VMALLOC: &[u8] = b"__vmalloc_node_range";

/// Opens a text of page_owner; `None` for a file that does not begin as one.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Option<Result<Trace, OpenError>> {
    let (file, is_live) = open_text(path)?;
    let mut reader = BufReader::new(file);
    let begin = reader.fill_buf().ok()?;
    begins(begin).then(|| read(path, Texts::new(reader, options), is_live))
}

/// True for the first bytes of a text of page_owner.
pub(super) fn begins(sample: &[u8]) -> bool {
    sample.starts_with(text::BEGIN)
}

/// Opens a text of page_owner that was unpacked.
#[cfg(feature = "inputs")]
pub(super) fn open_held(path: &Path, mut file: &File, options: &OpenOptions) -> Result<Trace, OpenError> {
    std::io::Seek::rewind(&mut file).map_err(io_error(path))?;
    let file = file.try_clone().map_err(io_error(path))?;
    read(path, Texts::new(BufReader::new(file), options), false)
}

/// Opens a stored file, or the kernel's own text; true with the latter. Nothing else of a file system that the kernel makes up is opened.
fn open_text(path: &Path) -> Option<(File, bool)> {
    match regular::open(path) {
        Ok(file) => Some((file, false)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && path.file_name()? == PAGE_OWNER => {
            regular::open_made_up(path, "debugfs").ok().map(|file| (file, true))
        }
        Err(_) => None,
    }
}

fn read(path: &Path, mut texts: Texts, is_live: bool) -> Result<Trace, OpenError> {
    let fault = texts.read_all().map_err(io_error(path))?;
    let bytes = if is_live { rustix::param::page_size() as u64 } else { USUAL_PAGE_BYTES };
    let (source, metadata) = texts.into_source(path, bytes, fault);
    let mut trace = Trace::of_sources(PAGE_OWNER, Some("mono"), vec![Box::new(source)])?;
    trace.info.page_bytes = Some(bytes);
    trace.info.page_bytes_from = if is_live { PageBytesFrom::Machine } else { PageBytesFrom::Guess };
    trace.info.capabilities = InputCapabilities::one_moment(ByKind::from_fn(|kind| kind == Kind::Pages));
    trace.info.text = Some(Box::new(crate::trace::TextInfo {
        form: "dump",
        title: "page_owner dump",
        unit: "blocks",
        has_stacks: true,
        has_times: true,
        has_threads: true,
        has_objects: true,
        ..Default::default()
    }));
    trace.metadata = metadata;
    Ok(trace)
}

/// Reader of a text.
struct Texts {
    reader: BufReader<File>,
    options: OpenOptions,
    /// Bytes and lines read.
    offset: u64,
    lines: u64,
    blocks: Blocks,
    stacks: Stacks,
    owners: Owners,
    symbols: Symbols,
    /// Command name of each thread in its latest block, and the time of that.
    comms: HashMap<i32, (u64, Box<[u8]>)>,
}

/// Block that is read.
#[derive(Default)]
struct Block {
    head: Head,
    pfn: Option<u64>,
    frames: Vec<u64>,
    allocators: Allocators,
    /// The kernel made the stack up.
    is_early: bool,
    /// The latest frame is of a function that allocates pages.
    allocates: bool,
}

impl Block {
    /// Notes what the name of the next frame tells.
    fn note(&mut self, frame: Frame<'_>) {
        let Frame::Function { name, .. } = frame else {
            self.allocates = false;
            return;
        };
        self.is_early |= name == EARLY;
        if self.allocates && find(name, VMALLOC).is_some() {
            self.allocators = self.allocators.with(Allocators::VMALLOC);
        }
        self.allocates = find(name, b"alloc_pages").is_some();
    }
}

impl Texts {
    fn new(reader: BufReader<File>, options: &OpenOptions) -> Texts {
        Texts {
            reader,
            blocks: Blocks::new(options.alike),
            options: options.clone(),
            offset: 0,
            lines: 0,
            stacks: Stacks::default(),
            owners: Owners::default(),
            symbols: Symbols::default(),
            comms: HashMap::new(),
        }
    }

    /// Reads all blocks, or those before a cut or a line that makes no sense: the finding says which.
    fn read_all(&mut self) -> io::Result<Option<Fault>> {
        let mut line = Vec::new();
        let mut block: Option<Block> = None;
        loop {
            line.clear();
            let read = (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut line)? as u64;
            if read == 0 {
                break;
            }
            self.lines += 1;
            let is_whole = line.pop_if(|byte| *byte == b'\n').is_some();
            if !is_whole && read == MAX_LINE {
                return Ok(Some(self.fault(Code::BadText, "is longer than any that a kernel writes")));
            }
            // A serial console sends a CR at the end of each line.
            line.pop_if(|byte| *byte == b'\r');
            if !is_whole {
                // The kernel ends each line, so the text was cut, and what is left of the line may seem to be another one.
                return Ok(Some(self.fault(Code::TextCut, "is cut")));
            }
            if let Err(reason) = self.take(&line, &mut block) {
                return Ok(Some(self.fault(Code::BadText, reason)));
            }
            self.offset += read;
        }
        Ok(block.map(|_| self.fault(Code::TextCut, "is the last one, and ends no block")))
    }

    fn take(&mut self, line: &[u8], block: &mut Option<Block>) -> Result<(), &'static str> {
        let Some(open) = block else {
            if !line.is_empty() {
                *block = Some(Block { head: text::head(line)?, ..Block::default() });
            }
            return Ok(());
        };
        match text::line(line).ok_or("is none that the kernel writes")? {
            BlockLine::Pfn(pfn, allocators) if open.pfn.is_none() => {
                open.pfn = Some(pfn);
                open.allocators = open.allocators.with(allocators);
            }
            BlockLine::Pfn(..) => return Err("is a second PFN of one block"),
            BlockLine::Frame(frame) if open.frames.len() < MAX_FRAMES => {
                open.note(frame);
                open.frames.push(self.symbols.address(frame));
            }
            BlockLine::Frame(_) => return Err("is a frame too many"),
            BlockLine::Note => {}
            BlockLine::End => {
                let done = block.take().is_none_or(|block| self.put(block));
                return if done { Ok(()) } else { Err("ends a block without a PFN") };
            }
        }
        Ok(())
    }

    /// Adds a whole block; false for one without its frame number. Pages that were given back are left out unless asked for.
    fn put(&mut self, block: Block) -> bool {
        let Block { head, pfn: Some(pfn), mut frames, allocators, is_early, .. } = block else { return false };
        let (at, is_released) = (head.allocated_at.unwrap_or(0), head.is_released());
        if is_released && !self.options.released {
            return true;
        }
        if is_early {
            frames = vec![self.symbols.early()];
        }
        let comm = head.comm.map(Vec::into_boxed_slice);
        if let Some((pid, comm)) = head.pid.zip(comm.as_ref()) {
            let latest = self.comms.entry(pid).or_insert_with(|| (at, comm.clone()));
            if at > latest.0 {
                *latest = (at, comm.clone());
            }
        }
        let owner = Owner { tgid: head.tgid, comm, allocators, is_released, listed: None };
        let facts = Facts { gfp: head.gfp, owner: self.owners.intern(&owner), pid: head.pid, order: head.order };
        let stack = (!frames.is_empty()).then(|| self.stacks.intern(&frames));
        let at = if self.options.at_free_before { head.freed_at.unwrap_or(0) } else { at };
        self.blocks.push(Held { at, pfn, stack, facts });
        true
    }

    fn fault(&self, code: Code, reason: &str) -> Fault {
        let message = format!("line {} {reason}; the blocks before it count", self.lines);
        Fault { code, offset: self.offset, block: None, message }
    }

    /// The blocks, and the names beside them.
    fn into_source(mut self, path: &Path, page_bytes: u64, fault: Option<Fault>) -> (Pages, Metadata) {
        self.blocks.sort();
        let comms = self.comms.into_iter().map(|(pid, (_, comm))| (pid, comm)).collect();
        let metadata = Metadata { kallsyms: self.symbols.into_kallsyms(), comms, ..Metadata::default() };
        let (all, blocks) = (self.blocks.left(), self.blocks);
        let (stacks, owners, path) = (self.stacks, self.owners, path.to_owned());
        (Pages { path, page_bytes, all, blocks, stacks, owners, fault }, metadata)
    }
}

/// The pages of a text, oldest first.
#[derive(Debug)]
struct Pages {
    path: PathBuf,
    page_bytes: u64,
    /// Number of blocks of the text.
    all: u64,
    blocks: Blocks,
    stacks: Stacks,
    owners: Owners,
    fault: Option<Fault>,
}

impl EventSource for Pages {
    fn cpu(&self) -> u32 {
        0
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&mut self, names: &mut Names, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
        let name = names.intern(b"mm_page_alloc");
        while items.len() < AT_ONCE
            && let Some(Held { at, pfn, stack, facts }) = self.blocks.take()
        {
            let bytes = page_bytes(self.page_bytes, facts.order.into());
            let amounts = Amounts {
                objects: Some(1),
                requested: Some(bytes),
                allocated: Some(bytes),
                wasted: Some(0),
                pages: Some(1 << facts.order),
            };
            let listed = Listed { entries: 1, amounts, newest: at, ..Listed::default() };
            let owner = self.owners.get(facts.owner).cloned().unwrap_or_default();
            let owner = Owner { listed: Some(Box::new(listed)), ..owner };
            items.push(StreamItem::Event(Event {
                address: pfn,
                requested: bytes,
                allocated: bytes,
                gfp: Some(facts.gfp),
                pid: facts.pid,
                order: Some(facts.order),
                stack: stack.map(|stack| names.stacks.intern(self.stacks.get(stack))),
                owner: Some(names.owners.intern(&owner)),
                action: Action::Alloc(Kind::Pages),
                ..Event::new(at, 0, name)
            }));
        }
        match self.fault.take_if(|_| items.is_empty()) {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    fn bytes_read(&self) -> u64 {
        self.all - self.blocks.left()
    }

    fn bytes_to_read(&self) -> u64 {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TEXT: &str = "\
Page allocated via order 1, mask 0xcc0(GFP_KERNEL), pid 7, tgid 6 (a b), ts 300 ns, free_ts 0 ns
PFN 0x10 type Unmovable Block 0 type Unmovable Flags 0x0()
 __alloc_pages+0x10/0x20
 foo+0x4/0x40 [foo]
Charged to memcg /

Page allocated via order 0, mask 0x0, pid 8, tgid 8 (x), ts 200 ns, free_ts 250 ns
PFN 18 type Movable Block 0 type Movable Flags 0x0()
 foo+0x4/0x40 [foo]

Page allocated via order 0, mask 0x0, pid 8, tgid 8 (x), ts 100 ns, free_ts 100 ns
PFN 19 type Movable Block 0 type Movable Flags 0x0()

";

    fn events(text: &str, options: OpenOptions) -> (Vec<Event>, Names, Option<Fault>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("owners");
        fs::write(&path, text).unwrap();
        let mut texts = Texts::new(BufReader::new(File::open(&path).unwrap()), &options);
        let fault = texts.read_all().unwrap();
        let (mut source, _) = texts.into_source(&path, 4096, fault.clone());
        let (mut names, mut items) = (Names::new(), Vec::new());
        source.read(&mut names, &mut items).ok();
        let events = items.into_iter().filter_map(|item| match item {
            StreamItem::Event(event) => Some(event),
            StreamItem::Gap(_) => None,
        });
        (events.collect(), names, fault)
    }

    #[test]
    fn held_pages_are_allocations_in_the_order_of_their_times() {
        let (events, names, fault) = events(TEXT, OpenOptions::default());
        let facts: Vec<_> = events.iter().map(|e| (e.at, e.address, e.allocated, e.order, e.pid)).collect();
        assert_eq!(facts, [(100, 19, 4096, Some(0), Some(8)), (300, 16, 8192, Some(1), Some(7))]);
        let depths: Vec<_> =
            events.iter().map(|event| event.stack.map(|stack| names.stacks.get(stack).len())).collect();
        assert_eq!((depths, fault), (vec![None, Some(2)], None));
    }

    #[test]
    fn a_block_has_the_owner_that_its_own_lines_tell() {
        const MORE: &str = "\
Page allocated via order 0, mask 0x0, pid 7, tgid 7 (later), ts 400 ns, free_ts 0 ns
PFN 32 type CMA Block 0 type CMA Flags 0x200(slab)
 __alloc_pages+0x10/0x20
 __vmalloc_node_range+0x10/0x20
 register_early_stack+0x1/0x2

";
        let (events, names, _) =
            events(&format!("{TEXT}{MORE}"), OpenOptions { released: true, ..OpenOptions::default() });
        let owners: Vec<&Owner> = events.iter().filter_map(|event| event.owner(&names)).collect();
        let comms: Vec<&[u8]> = owners.iter().filter_map(|owner| owner.comm.as_deref()).collect();
        assert_eq!(comms, [&b"x"[..], b"x", b"a b", b"later"]);
        assert_eq!(owners.iter().map(|owner| owner.tgid.unwrap()).collect::<Vec<_>>(), [8, 8, 6, 7]);
        assert_eq!(owners.iter().map(|owner| owner.is_released).collect::<Vec<_>>(), [false, true, false, false]);
        assert_eq!(
            (owners[2].allocators.names(), owners[3].allocators.names().as_str()),
            ("others".to_owned(), "cma,slab,vmalloc")
        );
        // One frame stands for the stack that the kernel made up.
        assert_eq!(events[3].stack.map(|stack| names.stacks.get(stack).len()), Some(1));
    }

    /// Each proper prefix is a cut text: the blocks that it has whole count.
    #[test]
    fn a_text_that_was_cut_is_truncated() {
        let options = OpenOptions { released: true, ..OpenOptions::default() };
        for len in text::BEGIN.len()..TEXT.len() {
            let (events, _, fault) = events(&TEXT[..len], options.clone());
            let blocks = TEXT[..len].matches("\n\n").count();
            assert_eq!(events.len(), blocks, "{len}");
            let at_end = TEXT[..len].ends_with("\n\n");
            let code = fault.map(|fault| fault.code);
            assert_eq!(code, (!at_end).then_some(Code::TextCut), "{len}");
        }
    }

    #[test]
    fn lines_may_end_as_a_serial_console_ends_them() {
        let (plain, ..) = events(TEXT, OpenOptions::default());
        let (serial, _, fault) = events(&TEXT.replace('\n', "\r\n"), OpenOptions::default());
        let facts = |events: &[Event]| events.iter().map(|e| (e.at, e.address, e.stack)).collect::<Vec<_>>();
        assert_eq!((facts(&serial), fault), (facts(&plain), None));
    }

    #[test]
    fn blocks_before_a_line_without_sense_count() {
        for (rest, reason) in [
            ("rubbish\n", "line 14 has no `Page allocated via order`"),
            ("Page allocated via order 0, mask 0x0\nrubbish\n", "line 15 is none that the kernel writes"),
            ("Page allocated via order 0, mask 0x0\n\n", "line 15 ends a block without a PFN"),
            ("Page allocated via order 0, mask 0x0\nPFN 1\nPFN 2\n", "line 16 is a second PFN"),
        ] {
            let (events, _, fault) = events(&format!("{TEXT}{rest}"), OpenOptions::default());
            let message = fault.map(|fault| fault.message).unwrap_or_default();
            assert!(message.starts_with(reason), "{message}");
            assert_eq!(events.len(), 2, "{rest}");
        }
    }
}
