//! Files of other programs, by their first bytes: an error says what a file is, and what to do with it.

mod texts;

use std::path::Path;

use self::texts::OTHER_TRACER;
use crate::disk::block::MAGIC;

/// Known formats: offset and bytes of the mark, what the file is, and the remedy.
const FORMATS: &[(usize, &[u8], &str, &str)] = &[
    // In an archive, packed, or on standard input: elsewhere it is read.
    (0, &MAGIC, "a file of a recording", "name the directory that has all files of the recording, unpacked"),
    (0, b"\x17\x08\x44tracing", "a trace.dat of trace-cmd", BY_INPUTS),
    (0, b"PERFILE2", "a perf.data of perf", BY_INPUTS),
    (0, b"2ELIFREP", "a perf.data of perf", BY_INPUTS),
    (0, b"PERFFILE", "a perf.data of perf", BY_INPUTS),
    (0, b"\xc1\x1f\xfc\xc1", "a stream of the Common Trace Format (CTF, LTTng)", OTHER_TRACER),
    (0, b"\xc1\xfc\x1f\xc1", "a stream of the Common Trace Format (CTF, LTTng)", OTHER_TRACER),
    (0, b"\x57\x1d\xd1\x75", "the description of a trace in the Common Trace Format (CTF, LTTng)", OTHER_TRACER),
    (0, b"\x75\xd1\x1d\x57", "the description of a trace in the Common Trace Format (CTF, LTTng)", OTHER_TRACER),
    (0, b"/* CTF 1", "the description of a trace in the Common Trace Format (CTF, LTTng)", OTHER_TRACER),
    (0, b"# tracer:", "text of ftrace (trace or trace_pipe)", BY_INPUTS),
    (0, b"\x89kmIDX\r\n", "the report.index of a trace", "name the trace's directory"),
    (0, b"\x1f\x8b", "compressed with gzip", UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd", UNPACK),
    (0, b"\xfd7zXZ\0", "compressed with xz", UNPACK),
    (0, b"BZh", "compressed with bzip2", UNPACK),
    (0, b"\x04\x22\x4d\x18", "compressed with lz4", UNPACK),
    (0, b"PK\x03\x04", "a zip archive", UNPACK),
    (257, b"ustar", "a tar archive", UNPACK),
    (0, b"070701", "a cpio archive", UNPACK),
    (0, b"KDUMP   ", "a crash dump of kdump (vmcore)", CRASH_DUMP),
    (0, b"makedumpfile", "a crash dump of makedumpfile", CRASH_DUMP),
    (0, b"\x7fELF", "an ELF file (a program, a kernel or a core dump)", NO_TRACE),
    (0, b"\xa1\xb2\xc3\xd4", "a capture of network packets (pcap)", NO_TRACE),
    (0, b"\xd4\xc3\xb2\xa1", "a capture of network packets (pcap)", NO_TRACE),
    (0, b"\x4d\x3c\xb2\xa1", "a capture of network packets (pcap)", NO_TRACE),
    (0, b"\x0a\x0d\x0d\x0a", "a capture of network packets (pcapng)", NO_TRACE),
    (0, b"SQLite format 3\0", "a database of SQLite", NO_TRACE),
    // The first object in it is the path of a tree, as text.
    (0, b"S'", "a Python pickle, as trace_analyze saved them", "save a document from the trace with --save-db"),
];

/// Bytes of a stream that are needed to tell what it is: as many as the longest mark at offset 0 has. A tar archive is not recognised: a
/// slow writer would delay the message until byte 262.
pub(super) const STREAM_MARK_BYTES: usize = 16;

/// Packets of perfetto that are no accident.
const LEAST_PACKETS: usize = 2;

/// Remedy for files that programs with the feature `inputs` read, where they are not in a directory of others.
const BY_INPUTS: &str = if cfg!(feature = "inputs") {
    "name the file itself"
} else {
    "this small program does not read it; use one built with the feature full"
};
const UNPACK: &str = "unpack it, and name what comes out";
const CRASH_DUMP: &str =
    "name a text of it: what crash prints for kmem -s or owner -l, or drgn's page_owner.py; see docs/texts.md";
const NO_TRACE: &str = "not a trace: name a trace directory, or files out of one";

/// Description of a file with these first bytes, if its format is known: what it is, and what to do.
pub(super) fn known(sample: &[u8]) -> Option<String> {
    let has =
        |&(at, mark, ..): &(usize, &[u8], &str, &str)| sample.get(at..).is_some_and(|rest| rest.starts_with(mark));
    FORMATS.iter().find(|format| has(format)).map(|(.., what, remedy)| format!("{what}; {remedy}"))
}

/// Description of any file that is no trace.
pub(super) fn described(sample: &[u8]) -> String {
    let known = known(sample);
    known.unwrap_or_else(|| match sample {
        [] => format!("an empty file; {NO_TRACE}"),
        text if is_text(text) => texts::described(text).unwrap_or_else(|| format!("a text; {NO_TRACE}")),
        packets if is_of_perfetto(packets) => {
            "a trace of perfetto; convert it with traceconv systrace, and name the text that comes out".to_owned()
        }
        _ => "neither a kmemtrace file nor a relay stream: name a trace directory, or files out of one".to_owned(),
    })
}

/// Description of the file at `path`, which is no trace: sub-buffers of a `trace.dat` have no mark, but the name that trace-cmd gives them.
pub(super) fn described_at(path: &Path, sample: &[u8]) -> String {
    let name = path.as_os_str().to_string_lossy();
    match name.rsplit_once(".cpu") {
        Some((whole, cpu)) if known(sample).is_none() && !whole.is_empty() && is_number(cpu) => format!(
            "what trace-cmd has recorded of one CPU, and not put into {whole}: it was killed, or still runs; once it has ended, run: \
             trace-cmd restore -o new.dat {whole}.cpu*"
        ),
        _ => described(sample),
    }
}

/// True for packets of perfetto one behind the other: field 1 of the message `Trace` (`protos/perfetto/trace/trace.proto`), with its length
/// in groups of seven bits.
fn is_of_perfetto(mut sample: &[u8]) -> bool {
    let mut packets = 0usize;
    while let [0x0a, rest @ ..] = sample {
        let mut len = 0usize;
        let Some(last) = rest.iter().take(4).position(|byte| byte & 0x80 == 0) else { return false };
        let groups = rest.iter().take(last.saturating_add(1)).zip((0u32..).step_by(7));
        groups.for_each(|(byte, shift)| len |= usize::from(byte & 0x7f) << shift);
        packets = packets.saturating_add(1);
        match rest.get(last.saturating_add(1).saturating_add(len)..) {
            Some(next) if len > 1 => sample = next,
            _ => return packets > LEAST_PACKETS,
        }
    }
    sample.is_empty() && packets > LEAST_PACKETS
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// True for UTF-8 without control characters other than those of lines; a character may be cut at the end.
pub(super) fn is_text(sample: &[u8]) -> bool {
    let text = match std::str::from_utf8(sample) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            sample.get(..error.valid_up_to()).and_then(|valid| std::str::from_utf8(valid).ok()).unwrap_or("\0")
        }
        Err(_) => return false,
    };
    !text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_trace_dat_are_told_by_their_names() {
        for (name, is_part) in [("d/trace.dat.cpu0", true), ("x.cpu12", true), (".cpu1", false), ("trace.cpu1x", false)]
        {
            let said = described_at(Path::new(name), b"\x01\x02\x03");
            assert_eq!(said.contains("trace-cmd restore -o new.dat "), is_part, "{said}");
        }
        assert!(described_at(Path::new("a.cpu1"), b"\x7fELF").starts_with("an ELF file"));
    }

    #[test]
    fn marks_at_the_start_are_no_longer_than_what_is_read_of_a_stream() {
        let longest = FORMATS.iter().filter(|(at, ..)| *at == 0).map(|(_, mark, ..)| mark.len()).max();
        assert_eq!(longest, Some(STREAM_MARK_BYTES));
    }

    #[test]
    fn files_are_told_by_their_first_bytes() {
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        for (bytes, said) in [
            (&b"\x17\x08\x44tracing6\0"[..], "a trace.dat of trace-cmd; "),
            (b"PERFILE2\x68", "a perf.data of perf; "),
            (b"\x1f\x8b\x08", "compressed with gzip; unpack"),
            (&tar, "a tar archive"),
            (b"\x7fELF\x02", "an ELF file"),
            (b"KDUMP   \x06", "a crash dump of kdump (vmcore); name a text of it"),
            (b"makedumpfile\0", "a crash dump of makedumpfile; name a text of it"),
            (b"S'/usr/src/linux'\np0\n.", "a Python pickle, as trace_analyze saved them; save a document"),
            (b"", "an empty file"),
            (b"# tracer: nop\n#\n", "text of ftrace"),
            ("größe\n".as_bytes(), "a text;"),
            (&"größe".as_bytes()[..4], "a text;"),
            (b"\x0a\x02\x58\x01\x0a\x03\x58\x02\x03\x0a\x84\x01xx", "a trace of perfetto; convert"),
            (b"\x0a\x02\x58\x01\x0b\x03", "neither a kmemtrace file"),
            (b"/* CTF 1.8 */", "the description of a trace in the Common Trace Format"),
            (b"<!DOCTYPE html><script class=\"trace-data\" type=\"application/text\">", "a page of systrace"),
            (b"\x17\x08\x44", "neither a kmemtrace file"),
            (b"\x00\x01", "neither a kmemtrace file"),
            (b"a\xffb", "neither a kmemtrace file"),
        ] {
            assert!(described(bytes).starts_with(said), "{bytes:?}: {}", described(bytes));
        }
    }
}
