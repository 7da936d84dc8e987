//! Findings about a trace's files: one code for one thing, in check and report alike.

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Info,
    /// Figures may be affected.
    Warning,
    /// Bytes are missing or damaged.
    Error,
}

impl Severity {
    /// `"info"`, `"warning"` or `"error"`.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// The state of a file or a trace, from best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Verdict {
    /// Whole, nothing lost. (`kmemtrace-check` prints it as `ok`, `kmemtrace-report` as `complete`.)
    #[default]
    Complete,
    /// Whole, but events were lost.
    Lossy,
    /// A file ends early, has no end block, or is not there.
    Truncated,
    /// Bytes fail their checksum or make no sense.
    Corrupt,
}

macro_rules! codes {
    ($($variant:ident = $number:literal, $severity:ident, $verdict:ident, $title:literal, $why:literal;)*) => {
        /// A stable code of a finding about a trace's files. Numbers are never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Code {
            $(#[doc = $title] $variant = $number,)*
        }

        impl Code {
            /// Every code, ascending.
            pub const ALL: &[Code] = &[$(Code::$variant,)*];

            /// Severity of a finding with this code.
            pub fn severity(self) -> Severity {
                match self { $(Code::$variant => Severity::$severity,)* }
            }

            /// The best verdict that a file with this finding can have.
            pub fn verdict(self) -> Verdict {
                match self { $(Code::$variant => Verdict::$verdict,)* }
            }

            /// Title of a few words.
            pub fn title(self) -> &'static str {
                match self { $(Code::$variant => $title,)* }
            }

            /// Meaning, origin and remedy: the text of `--explain`.
            pub fn explanation(self) -> &'static str {
                match self { $(Code::$variant => $why,)* }
            }
        }
    };
}

codes! {
    Overrun = 101, Warning, Lossy, "events lost in the kernel's buffer",
        "The tracer overwrote or dropped events before the recorder could take them: the per-CPU buffer was full. \
         The number is the kernel's own (overrun + dropped events + commit overrun), the places are the marks in the \
         sub-buffers. Record again with a larger --buffer-size, a faster disk, or fewer events (-e).";
    Unplaced = 102, Warning, Lossy, "events lost at an unknown place",
        "The kernel's counters tell of more lost events than the marks in the sub-buffers do. The number is right. Where the file has \
         the times of the counters, the events were lost between two looks at them; else anywhere from the CPU's first event on, and \
         all findings of that time are suspect. Record again with a larger --buffer-size.";
    Cleared = 103, Warning, Lossy, "the buffer was cleared or changed by another program",
        "While the recorder ran, the instance's counters went back: another program emptied the buffer (wrote to `trace` or \
         `trace_clock`). How many events that cost is not known. Record again in an instance that no other program touches (-B).";
    RecorderLoss = 104, Warning, Lossy, "events lost by the recorder",
        "The recorder had taken these events from the kernel and could not write them, mostly because the disk was full. \
         Free some space, or put the trace elsewhere (-o).";
    SequenceHole = 105, Warning, Lossy, "sequence numbers are missing",
        "The relay channel numbers its records over all CPUs, and numbers are missing: bytes were lost by the reader, or a \
         CPU's file is missing or cut.";
    OtherReader = 106, Warning, Lossy, "another program read the buffer",
        "The kernel handed out more events of this CPU than are in the file: while the recorder ran, another reader took some \
         from the same instance. Record again in an instance that no other program reads (-B).";
    ForeignHand = 107, Warning, Lossy, "another program changed what is recorded",
        "While the recorder ran, another program switched tracing off, disabled an event, set a filter, cleared the buffer or changed \
         something else of the instance. The message says what it was. How many events that cost is not known; findings that touch \
         the time from when the state was last seen right to when it was seen right again are suspect.";
    Uncounted = 108, Warning, Lossy, "the end of the kernel's buffer could not be read or counted",
        "When the recording ended, the recorder could not read the counters of this CPU's buffer, because the instance was removed or the \
         kernel refused; or the kernel no longer handed out what the buffer had, because it stopped the buffer or killed the thread that \
         read it after an error of its own, which dmesg has. The message has the reason. Events lost from then on are not counted, and \
         findings are suspect. Record again in an instance that no other program removes (-B).";
    UnknownLoss = 109, Warning, Lossy, "events lost for a reason that is not known here",
        "A newer version of the recorder tells of lost events and gives a reason that this program does not know. Time and number are \
         right, and findings of that time are suspect. Use a newer kmemtrace to learn the reason.";
    Untold = 110, Warning, Lossy, "the input does not tell of lost events",
        "The kernel or a tool printed the events without saying whether some were lost: `perf script` does so without \
         --show-lost-events, and so do headers of the tracer that do not count entries (before Linux 3.3), dumps on a console, and the text of \
         one CPU whose header counts the entries of all. `perf record` with -F, or with -c above 1, leaves events out. Figures are right if nothing was lost.";
    DroppedLines = 111, Warning, Lossy, "lines of the text were dropped",
        "The text says itself that lines are missing: printk suppressed some, or its buffer was full. What they would have told is in no \
         figure. Raise the log's rate limit or its buffer (log_buf_len), and take the text again.";
    CutInBlock = 201, Error, Truncated, "ends inside a block",
        "The file stops in the middle of a block: the recorder was killed, the machine stopped or the copy is incomplete. \
         Every earlier block is whole and is reported.";
    NoEnd = 202, Error, Truncated, "has no end block",
        "Every block is whole, but the block that ends a finished recording is not there: the recorder is still running or \
         was killed, or the copy is incomplete.";
    ZeroTail = 203, Error, Truncated, "ends in zeros",
        "After the last whole block there is nothing but zeros: what a power cut leaves where the file had grown before its \
         data was on the disk. Every earlier block is whole and is reported.";
    Empty = 204, Error, Truncated, "is empty",
        "The file has no bytes: the recorder was killed before it wrote any, or the disk was full.";
    Missing = 205, Error, Truncated, "a CPU's file is missing",
        "The recording has a file for each CPU, and this CPU's is not there. Copy the whole directory.";
    RelayCut = 206, Error, Truncated, "ends inside a record",
        "The relay stream stops in the middle of a record. Every earlier record is whole and is reported.";
    SubBufferCut = 207, Error, Truncated, "ends inside a sub-buffer",
        "The file's length is no multiple of the sub-buffer size that events/header_page tells: the copy stopped early. Every \
         earlier sub-buffer is whole and is reported.";
    TextCut = 208, Error, Truncated, "ends inside a block of text",
        "The text stops in the middle of a line or of a block: the copy stopped early, or the kernel was still writing. Every earlier \
         block is whole and is used.";
    BadPayload = 301, Error, Corrupt, "block checksum differs",
        "The bytes of this block are not those that the recorder wrote. The block is left out and counts as a gap; the \
         blocks around it are good. Check the disk and the copy (compare with the original).";
    BadHeader = 302, Error, Corrupt, "block header is damaged",
        "There should be a block header here and its checksum differs, so the block's length is not known. Reading goes on \
         at the next header that is whole; what is between counts as a gap.";
    OutOfSequence = 303, Error, Corrupt, "blocks are missing, doubled or out of place",
        "Blocks are numbered from 0 without holes, and this is not the next number: blocks were lost, doubled or moved \
         within the file after it was written.";
    Foreign = 304, Error, Corrupt, "block of another CPU or another recording",
        "The block is whole but says that it belongs to another CPU's file or to another recording: files were mixed up. \
         It is left out.";
    BadSubBuffer = 305, Error, Corrupt, "sub-buffer makes no sense",
        "The block is as the recorder wrote it, but the kernel's sub-buffer in it cannot be walked: a length or the commit \
         size is out of bounds. The events before the fault are used, the rest counts as a gap.";
    BadRecord = 306, Error, Corrupt, "record is shorter than its event format",
        "A record of a traced event ends before the last field that its format describes. It is counted, not used.";
    WrongTotals = 307, Error, Corrupt, "totals differ from what is in the file",
        "A block header or the end block says how many events the file has, when the first and the last of them were, how many \
         were lost before or whether each mark has a number, and what is there differs.";
    BadFileHeader = 308, Error, Corrupt, "file header is damaged",
        "The first block tells how to decode the file, and it is damaged. If another file of the same recording is there, \
         its header is used; otherwise nothing of this file can be decoded.";
    BadRelayRecord = 309, Error, Corrupt, "relay record makes no sense",
        "There should be a relay record here and its event id, type or size is impossible. Reading goes on at the next \
         bytes that look like records.";
    BadCompression = 310, Error, Corrupt, "compressed block does not expand",
        "The block's checksum is right, but it does not expand to the size it claims, or its encoded records make no sense. Records \
         before the place that the message names are good and are reported; the rest of the block counts as a gap.";
    AfterEnd = 311, Error, Corrupt, "bytes after the end block",
        "A finished file ends with its end block, and there is more after it.";
    BadFormats = 312, Error, Corrupt, "event formats make no sense",
        "The file's description of the kernel's sub-buffers and events cannot be read, so no event can be decoded.";
    NeedsZstd = 313, Error, Corrupt, "compressed block, and this program is built without zstd",
        "The block is as the recorder wrote it, and it is compressed. The program was built from kmemtrace-abi without the feature \
         `zstd`. Build it with that feature, which is on by default. The block is left out and counts as a gap.";
    BadText = 314, Error, Corrupt, "text makes no sense from some line on",
        "A line of the text is none that the kernel writes there: the copy is damaged, or another kernel writes it otherwise. What stands \
         before the line is used; the rest counts as a gap.";
    BadLine = 315, Error, Corrupt, "line of an event makes no sense",
        "A line of a text of events is none that the kernel, trace-cmd or perf prints, or a field of an event is missing or makes no sense: \
         the text was damaged or edited. The line is left out and counts as a gap.";
    BackInTime = 401, Warning, Complete, "time goes backward",
        "Within one CPU a time stamp is earlier than the one before it. The event takes its predecessor's time. Use the \
         clock `mono` or `global`; `local` may jump on machines whose clock is unstable.";
    NoMeta = 501, Warning, Complete, "meta.out is missing or damaged",
        "Symbols, modules, command names and the CPU to node map are kept in meta.out. Figures are right without it, names \
         are missing.";
    TreeIncomplete = 502, Warning, Complete, "a file of the captured tree is missing",
        "A captured tree has the sub-buffers of a tracefs instance and the texts beside them. This one was not copied; what that \
         costs is said with it. Figures that do not need it are right.";
    UnlikeStats = 503, Warning, Complete, "events differ from the kernel's count",
        "The instance's stats say how many events the kernel had handed out, and another number is here: the file was cut where a \
         sub-buffer ends, another program read from the instance, or the stats were copied before the sub-buffers. Events that were handed out and are \
         not here count as lost, at an unknown time.";
    NoSymbols = 504, Warning, Complete, "the kernel showed no symbols",
        "The text of /proc/kallsyms that was kept is empty, or every address in it is 0: that is what the kernel shows with \
         kptr_restrict=2, without CAP_SYSLOG (as in a container), and with CONFIG_KALLSYMS=n. Figures are right; call-sites have no names, \
         and modules are not told apart. Name them afterwards: kmemtrace-report --kallsyms FILE takes a copy of /proc/kallsyms of the same \
         boot, or the System.map of the kernel.";
    NoAddress = 505, Warning, Complete, "events without an address",
        "The kernel printed (ptrval) in place of these events' addresses: early in the boot it has no key to hash them yet. The events are \
         counted, and belong to no object.";
    UnknownBlock = 601, Info, Complete, "has blocks of a kind unknown here",
        "A newer version of the recorder wrote them; they are marked as not needed to read the rest and are skipped.";
}

impl Code {
    /// The code as people see it: `K301`.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The code with this number.
    pub fn from_number(number: u16) -> Option<Code> {
        Code::ALL.iter().copied().find(|c| c.number() == number)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "K{}", self.number())
    }
}

/// A finding in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Kind of the finding.
    pub code: Code,
    /// Place in bytes from the start of the file.
    pub offset: u64,
    /// Number of the block it is in, where known.
    pub block: Option<u64>,
    /// A line without the file's name: expected and found values, and where good data resumes.
    pub message: String,
}
