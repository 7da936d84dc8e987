//! What a text of one moment tells: entries of memory that is held, and facts of the whole text.

use crate::kind::Kind;
pub(crate) use crate::listed::SlabColumns;
use crate::open::symbols::Frame;
use crate::owner::Allocators;

/// Form of a text, as documents and people name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FormName {
    /// `trace.input` of documents.
    pub(crate) input: &'static str,
    /// `trace.form` of documents.
    pub(crate) form: &'static str,
    /// Name for people: `page_owner dump`.
    pub(crate) title: &'static str,
    /// What there are many of in it: `blocks`, `lines`.
    pub(crate) unit: &'static str,
    /// Each entry is one object with its address.
    pub(crate) has_objects: bool,
}

/// What a reader made of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Took {
    /// The line is one of the form's.
    Line,
    /// The line does not belong to the form: another form may claim it, else it counts as skipped.
    NoLine,
    /// The line is the first one of another text of the same form: it was not taken, and the reader has ended the text before it.
    NextText,
}

/// Reader of one form: lines go in, entries come out.
pub(crate) trait Reader {
    /// Takes a line, without its end and the noise before it. An entry goes out once its last line was seen.
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took;

    /// The text has ended. `is_cut`: its last line had no newline, and was not taken.
    fn end(&mut self, is_cut: bool, out: &mut dyn Out);

    /// Name of the form, where lines behind the first one tell it.
    fn form(&self) -> Option<FormName> {
        None
    }

    /// True inside a block, which the next line may go on with.
    fn is_inside(&self) -> bool {
        false
    }

    /// True for the begin of a line that ends the block before it, where no other line does: a cut there leaves that block whole.
    fn begins_block(&self, line: &[u8]) -> bool {
        let _ = line;
        false
    }
}

/// Where a reader puts what it has read.
pub(crate) trait Out {
    /// Return address that stands for a frame, the same for equal frames: names of functions are kept once.
    fn address(&mut self, frame: Frame<'_>) -> u64;

    /// Memory that is held.
    fn entry(&mut self, entry: &Entry<'_>);

    /// A fact of the whole text.
    fn fact(&mut self, fact: Fact<'_>);

    /// Something is wrong with the text at this line: the verdict gets worse, reading goes on.
    fn trouble(&mut self, trouble: Trouble);
}

/// Reason for a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A block was left out, for this reason (`"has no order"`): corrupt.
    SkippedBlock(&'static str),
    /// The text begins or ends inside a block (`"ends inside a block"`): truncated.
    Cut(&'static str),
    /// The text tells that lines were dropped (`"printk dropped messages"`): lossy.
    Dropped,
}

/// Fact of a whole text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact<'t> {
    /// Kernel release, as `uname -r` has it.
    Kernel(&'t [u8]),
    /// Machine, as `uname -m` has it.
    Arch(&'t [u8]),
    /// Bytes of a page, which the text proves.
    PageBytes(u64),
    /// Counters or processes were counted in pages.
    CountsPages,
    /// Time of day at which the text was made, in seconds since 1970.
    TakenAt(i64),
    /// Lines of the form may be missing, so that sums over all lines are not known.
    MayLackLines,
    /// A counter of meminfo, zoneinfo or an OOM report, in bytes: its name (`"MemTotal"`, `"oom:active_anon"`), its value.
    Counter(&'t [u8], u64),
    /// Process of an OOM report: id, command, resident bytes.
    Process(i32, &'t [u8], u64),
    /// The text must not be read as a list of who holds memory, for this reason: exit status 2.
    Refusal(&'static str),
    /// Stack of a handle: the number, the frames' addresses, innermost first.
    HandleStack(u64, &'t [u64]),
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum EntryKind {
    /// The text tells it.
    Told(Kind),
    /// The functions that its stack passes over tell it, and without a stack the cache's name.
    #[default]
    OfStack,
    /// A line of allocinfo.
    Tag,
}

/// Site of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Site<'l> {
    /// By the rule of sites, from the stack.
    #[default]
    OfStack,
    /// The frame with this address ([`Out::address`]), whatever the stack is.
    Frame(u64),
    /// A word in place of a function: `before page_owner`, `no stack`, `vm_map_ram`, `unpurged vm_area`.
    Word(&'l [u8]),
    /// A handle, whose stack another text may have.
    Handle(u64),
    /// A line of source.
    Source { file: &'l [u8], line: u32, function: &'l [u8], module: Option<&'l [u8]> },
    /// The text tells none.
    Unknown,
}

/// Memory that is held. Sums are of all objects of the entry; `None`: the text does not say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry<'l> {
    pub(crate) kind: EntryKind,
    pub(crate) site: Site<'l>,
    /// Return addresses from [`Out::address`], innermost first; empty without a stack.
    pub(crate) stack: &'l [u64],
    /// Number of objects, or of blocks of pages. Entries of one object each, and alike, are added up.
    pub(crate) objects: Option<u64>,
    /// Bytes asked for. Of pages: see `pages`.
    pub(crate) requested: Option<u64>,
    /// Bytes handed out. Of pages: see `pages`.
    pub(crate) allocated: Option<u64>,
    /// Bytes handed out and not asked for.
    pub(crate) wasted: Option<u64>,
    /// Pages. Bytes of entries of kind `pages` are these times the size of a page, which is known once the text was read.
    pub(crate) pages: Option<u64>,
    /// Binary logarithm of the pages of each block.
    pub(crate) order: Option<u8>,
    /// Address of the object, frame number of the block's first page; 0 without.
    pub(crate) address: u64,
    pub(crate) gfp: Option<u64>,
    pub(crate) pid: Option<i32>,
    pub(crate) tgid: Option<i32>,
    pub(crate) comm: Option<&'l [u8]>,
    /// Time of the allocation, ns since boot.
    pub(crate) at: Option<u64>,
    /// Time at which the owner before gave the memory back, ns since boot.
    pub(crate) free_at: Option<u64>,
    pub(crate) cache: Option<&'l [u8]>,
    pub(crate) allocators: Allocators,
    pub(crate) is_released: bool,
    /// Module that the text names as the owner, where it has no stack (a culled row).
    pub(crate) module: Option<&'l [u8]>,
    pub(crate) beside: Beside<'l>,
}

/// Members that rows of some texts have beside the figures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Beside<'l> {
    #[default]
    Nothing,
    /// A line of alloc_traces or alloc_calls.
    Traces(Traces<'l>),
    /// A line of slabinfo and its kin, or of the slab list of an OOM report.
    Slab(SlabColumns),
    /// A line of allocinfo.
    Tag { is_accurate: bool, is_rounded: bool },
}

/// Columns of a line of alloc_traces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traces<'l> {
    /// Least, mean and largest age, in jiffies.
    pub(crate) age_jiffies: Option<[u64; 3]>,
    /// Least and largest thread id.
    pub(crate) pids: Option<[i64; 2]>,
    /// Lists of numbers as printed: `0-1,4`.
    pub(crate) cpus: Option<&'l [u8]>,
    pub(crate) nodes: Option<&'l [u8]>,
}
