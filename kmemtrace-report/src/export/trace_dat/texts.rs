//! Texts of a `trace.dat` that are made here, where a trace has none of its own.

use std::fmt::Write;

use kmemtrace::TraceInfo;
use kmemtrace_abi::disk::block::Counters;
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::trace::Metadata;

/// `events/header_event` of all kernels since Linux 2.6.31, but for the order of its lines.
const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n\
    \tpadding     : type == 29\n\ttime_extend : type == 30\n\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

/// Names of the trace: symbols, threads and the machine.
pub(super) struct Names {
    pub(super) kallsyms: Vec<u8>,
    /// `PID COMM` a line.
    pub(super) comms: Vec<u8>,
    pub(super) uname: Vec<u8>,
}

impl Names {
    /// Names of a trace before they are taken out of it.
    pub(super) fn of(metadata: &Metadata, info: &TraceInfo) -> Names {
        // A thread without a name makes trace-cmd 3.1 print another one's.
        let mut comms: Vec<_> = metadata.comms.iter().filter(|(_, comm)| !comm.is_empty()).collect();
        comms.sort_unstable();
        let comms = comms.into_iter().flat_map(|(pid, comm)| [pid.to_string().as_bytes(), b" ", comm, b"\n"].concat());
        let unknown = || {
            let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
            format!("Linux - {} {}", word(&info.kernel), word(&info.arch)).into_bytes()
        };
        let uname = Some(metadata.uname.trim_ascii().to_vec()).filter(|uname| !uname.is_empty());
        Names { kallsyms: metadata.kallsyms.clone(), comms: comms.collect(), uname: uname.unwrap_or_else(unknown) }
    }
}

/// `events/header_page` of sub-buffers of this shape: `text` if it describes them.
pub(super) fn header_page(text: &[u8], shape: &PageShape, endian: Endian) -> Vec<u8> {
    let has = PageShape::parse(&String::from_utf8_lossy(text), endian);
    if has.is_ok_and(|has| has == *shape) {
        return text.to_vec();
    }
    let PageShape { commit_offset, commit_size, data_offset, size, .. } = shape;
    let room = size - data_offset;
    format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
         \tfield: local_t commit;\toffset:{commit_offset};\tsize:{commit_size};\tsigned:1;\n\
         \tfield: int overwrite;\toffset:{commit_offset};\tsize:1;\tsigned:1;\n\
         \tfield: char data;\toffset:{data_offset};\tsize:{room};\tsigned:1;\n"
    )
    .into_bytes()
}

/// `events/header_event`.
pub(super) fn header_event(text: &[u8]) -> &[u8] {
    if text.is_empty() { HEADER_EVENT.as_bytes() } else { text }
}

/// The format of an event, with the line that trace-cmd requires.
pub(super) fn format(text: &str) -> String {
    let mut text = text.to_owned();
    if !text.contains("print fmt:") {
        text.push_str("\n\nprint fmt: \"\"");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// `trace_clock`: of a clock's name alone, that in brackets.
pub(super) fn clock(text: &str) -> String {
    if text.contains('[') { text.trim().to_owned() } else { format!("[{}]", text.trim()) }
}

/// A CPU's statistics as trace-cmd writes them, of a text of `stats`.
pub(super) fn stats(cpu: u32, text: &str) -> String {
    let text = text.trim();
    if text.starts_with("CPU:") { format!("{text}\n") } else { format!("CPU: {cpu}\n{text}\n") }
}

/// The text of `stats` with these counters.
pub(super) fn of_counters(counters: &Counters) -> String {
    let lines = [
        ("entries", counters.unread),
        ("overrun", counters.overrun),
        ("commit overrun", counters.commit_overrun),
        ("dropped events", counters.dropped),
        ("read events", counters.read),
    ];
    lines.into_iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}: {value}");
        text
    })
}

#[cfg(test)]
mod tests {
    use kmemtrace_abi::target::Target;

    use super::*;

    #[test]
    fn a_header_page_of_another_size_is_made_anew() {
        let target = Target { endian: Endian::Big, word_bytes: 4 };
        let shape = PageShape { target, commit_offset: 8, commit_size: 4, data_offset: 12, size: 65536 };
        let made = header_page(b"", &shape, Endian::Big);
        assert_eq!(PageShape::parse(std::str::from_utf8(&made).unwrap(), Endian::Big), Ok(shape));
        let with_note = [&made[..], b"\n"].concat();
        assert_eq!(header_page(&with_note, &shape, Endian::Big), with_note);
        let other = PageShape { size: 4096, ..shape };
        assert!(header_page(&made, &other, Endian::Big) != made);
    }

    #[test]
    fn texts_have_what_trace_cmd_requires() {
        assert_eq!(format("name: x\nID: 1"), "name: x\nID: 1\n\nprint fmt: \"\"\n");
        assert_eq!(format("name: x\n\nprint fmt: \"a\"\n"), "name: x\n\nprint fmt: \"a\"\n");
        assert_eq!((clock("mono"), clock("local [boot]\n")), ("[mono]".to_owned(), "local [boot]".to_owned()));
        let counters = Counters { overrun: 3.into(), read: 7.into(), ..Counters::default() };
        let text = stats(2, &of_counters(&counters));
        assert_eq!(text, "CPU: 2\nentries: 0\noverrun: 3\ncommit overrun: 0\ndropped events: 0\nread events: 7\n");
        assert_eq!(stats(9, &text), text);
    }
}
