//! Remedies: one line of advice for each finding, printed beside it.

use kmemtrace_abi::fault::{Code, Fault};

use crate::checks::STILL_RECORDED;

/// Remedy for a finding in a file.
pub(crate) fn about(fault: &Fault) -> Option<&'static str> {
    match fault.message.ends_with(STILL_RECORDED) {
        true => Some("check it again when its recorder has stopped"),
        false => remedy(fault.code),
    }
}

/// Remedy for a code; `None` where the user has nothing to do.
pub(crate) fn remedy(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::Overrun | Code::Unplaced => {
            "the kernel's buffer was full: record again with a larger --buffer-size, or fewer events (-e)"
        }
        Code::Cleared | Code::OtherReader | Code::ForeignHand => {
            "record again in an instance that no other program touches (-B NAME)"
        }
        Code::Uncounted => "record again in an instance that no other program removes (-B NAME)",
        Code::UnknownLoss => "use a newer kmemtrace, which knows the reason",
        Code::RecorderLoss => "the disk was full or failed: free some space, or put the trace elsewhere (-o)",
        Code::SequenceHole => "records were dropped, or a CPU's file is missing or cut: copy the whole directory",
        Code::CutInBlock | Code::NoEnd | Code::ZeroTail | Code::Empty | Code::RelayCut | Code::SubBufferCut => {
            "the recorder was killed, the machine stopped, or the copy is incomplete: compare with the original"
        }
        Code::DroppedLines => "raise the log's rate limit or its buffer (log_buf_len), and take the text again",
        Code::Missing => "copy the whole directory",
        Code::BadPayload | Code::BadHeader | Code::BadFileHeader | Code::BadCompression | Code::BadRelayRecord => {
            "the bytes changed after they were written: check the disk and compare with the original"
        }
        Code::NeedsZstd => "use a kmemtrace that is built with zstd",
        Code::BadText | Code::TextCut | Code::BadLine => {
            "copy the text again, from the kernel or the program that prints it"
        }
        Code::Untold => "record with kmemtraced, or trace-cmd record, whose files tell of loss",
        Code::NoAddress => "boot with no_hash_pointers to see addresses of early events",
        Code::OutOfSequence | Code::Foreign | Code::AfterEnd => {
            "files were mixed up or edited after they were written: copy them again from the original"
        }
        Code::BadSubBuffer | Code::BadRecord | Code::WrongTotals | Code::BadFormats => {
            "compare with the original: if it is the same, please report it, with the kernel's release"
        }
        Code::BackInTime => "record with --clock mono or global",
        Code::NoMeta => "copy the whole directory, and call-sites get their names",
        Code::NoSymbols => {
            "name call-sites with kmemtrace-report --kallsyms FILE: /proc/kallsyms of the same boot, or System.map"
        }
        Code::TreeIncomplete => "copy that file, too, before the instance is removed",
        Code::UnlikeStats => "copy stats after trace_pipe_raw, from an instance that no other program reads",
        Code::UnknownBlock => "use a newer kmemtrace to read all of it",
    })
}
