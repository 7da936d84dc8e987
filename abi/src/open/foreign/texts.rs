//! Texts that are no list of memory and no trace of it, by words in them.

/// A text: words that it has all of, what it is, and what would be needed.
type Known = (&'static [&'static [u8]], &'static str, &'static str);

/// Known texts. The first one counts whose words are all there.
const TEXTS: [Known; 26] = [
    (&[b"BUG: KASAN: "], "a report of KASAN on one bad access", LIVE_OBJECTS),
    (&[b"BUG: KFENCE: "], "a report of KFENCE on one bad access", LIVE_OBJECTS),
    (
        &[b"TRACE ", b" inuse=", b" fp="],
        "a log of SLUB's trace of one cache",
        "record events with kmemtraced, or read alloc_traces",
    ),
    (&[b"): Poison overwritten"], "a report of SLUB on one damaged object", LIVE_OBJECTS),
    (&[b"): Redzone overwritten"], "a report of SLUB on one damaged object", LIVE_OBJECTS),
    (
        &[b"kmemleak: ", b" new suspected memory leak"],
        "a log in which kmemleak counts leaks",
        "read /sys/kernel/debug/kmemleak",
    ),
    (
        &[b"PHYSICAL", b"MAPPING", b"CNT FLAGS"],
        "the list of pages of crash's kmem -p, which has no owners",
        "boot with page_owner=on, and read /sys/kernel/debug/page_owner, or use crash's owner",
    ),
    (&[b"{ cpu_id = ", b" }, { "], "the text of a trace of LTTng, by babeltrace", OTHER_TRACER),
    (&[b"sched_switch:"], "a trace of the scheduler without events of memory", EVENTS),
    (&[b"sched_wakeup:"], "a trace of the scheduler without events of memory", EVENTS),
    (&[b"# tracer: function"], "a trace of functions without events of memory", EVENTS),
    (&[b"# entries-in-buffer/entries-written:"], "text of ftrace without events of memory", EVENTS),
    (&[b"\nnr_free_pages ", b"\nnr_"], "/proc/vmstat", MEMINFO),
    (&[b"nr_free_pages ", b"\nnr_zone_"], "/proc/vmstat", MEMINFO),
    (&[b"Page block order:", b"Free pages count per migrate type"], "/proc/pagetypeinfo", MEMINFO),
    (&[b"Node 0, zone "], "/proc/buddyinfo", MEMINFO),
    (&[b"VmFlags:", b"Rss:"], "the smaps of a process", "kmemtrace reads the kernel's memory, not that of processes"),
    (&[b"VmRSS:", b"VmSize:"], "the status of a process", "kmemtrace reads the kernel's memory, not that of processes"),
    (&[b"total ", b"used ", b"buff/cache", b"Mem:"], "the output of free", MEMINFO),
    (&[b"PID USER", b"%CPU"], "the output of top", MEMINFO),
    (&[b"MemTotal:", b"Node 0 Mem"], "meminfo of one node", MEMINFO),
    (
        &[b"==", b"ERROR: LeakSanitizer"],
        "a report of LeakSanitizer on a process",
        "kmemtrace reads the kernel's memory",
    ),
    (&[b"==", b"LEAK SUMMARY:"], "a report of valgrind on a process", "kmemtrace reads the kernel's memory"),
    (&[b"[    0.000000]"], LOG, REPORTS),
    (&[b"] Linux version "], LOG, REPORTS),
    (&[b" kernel: "], LOG, REPORTS),
];

/// What would be needed for recordings of other tracers.
pub(super) const OTHER_TRACER: &str = "it is not read here; record with kmemtraced, trace-cmd or perf";
const LOG: &str = "a kernel log without a report on memory";
const REPORTS: &str = "a log is read if it has an OOM report, Mem-Info, kmemleak's objects, dump_page() with page_owner, or objects that \
                       remained in a cache";
const EVENTS: &str = "record the events of memory, with kmemtraced or trace-cmd record -e kmem";
const MEMINFO: &str = "read /proc/meminfo, /proc/slabinfo or an OOM report";
const LIVE_OBJECTS: &str =
    "it does not list who holds memory; read alloc_traces, kmemleak or page_owner, or record with kmemtraced";

/// Description of a text that is known: what it is, and what would be needed.
pub(super) fn described(sample: &[u8]) -> Option<String> {
    if let Some(structured) = structured(sample.trim_ascii_start()) {
        return Some(structured);
    }
    if sample.trim_ascii() == b"No data" {
        return Some(
            "an empty list of the kernel (\"No data\"); boot with slub_debug=U to have alloc_traces filled".to_owned(),
        );
    }
    let has = |words: &&'static [u8]| sample.windows(words.len()).any(|part| part == *words);
    let known = TEXTS.iter().find(|(words, ..)| words.iter().all(has));
    match known {
        Some((_, what, needed)) => Some(format!("{what}; {needed}")),
        None => is_log(sample).then(|| format!("{LOG}; {REPORTS}")),
    }
}

/// JSON and XML, by the first byte.
fn structured(text: &[u8]) -> Option<String> {
    let has = |words: &[u8]| text.windows(words.len()).any(|part| part == words);
    let (what, needed) = match text.first()? {
        // Texts that begin with the time of a log, or with a list of C, are not JSON.
        b'[' if !is_json_list(text) => return None,
        b'{' | b'[' if has(b"\"kmemtrace.") => {
            ("a document of kmemtrace-report", "name the recording or the text that it was made of")
        }
        b'{' | b'[' if has(b"\"traceEvents\"") => ("JSON of another program (Chrome's trace format)", EVENTS),
        b'{' | b'[' => ("JSON of another program", "name the trace or the text that it was made of"),
        b'<' if has(b"class=\"trace-data\"") || has(b"trace-viewer") || has(b"systrace") => {
            ("a page of systrace", "save the lines behind class=\"trace-data\" in it as a text of their own")
        }
        b'<' if has(b"<html") || has(b"<!DOCTYPE html") || has(b"<!doctype html") => {
            ("a web page", "save the text in it as a file of its own")
        }
        b'<' if has(b"<?xml") => ("XML of another program", "name the trace or the text that it was made of"),
        _ => return None,
    };
    Some(format!("{what}; {needed}"))
}

/// A list of JSON begins with a value.
fn is_json_list(text: &[u8]) -> bool {
    let first = text.get(1..).unwrap_or_default().trim_ascii_start().first();
    matches!(first, Some(b'{' | b'[' | b'"' | b']'))
}

/// True if most lines begin with a time as printk writes it: `[   12.345678] `.
fn is_log(sample: &[u8]) -> bool {
    let is_stamped = |line: &&[u8]| {
        let inside = line.strip_prefix(b"[").and_then(|line| line.split(|byte| *byte == b']').next());
        let is_of_time = |byte: &u8| byte.is_ascii_digit() || *byte == b'.' || *byte == b' ';
        inside.is_some_and(|time| time.contains(&b'.') && time.iter().all(is_of_time))
    };
    let lines = || sample.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).take(1000);
    lines().filter(is_stamped).count().saturating_mul(2) > lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_by_their_words() {
        for (text, said) in [
            ("{\"traceEvents\": []}", "JSON of another program (Chrome's trace format); record"),
            ("[{\"a\": 1}]", "JSON of another program; "),
            ("{ \"schema\": \"kmemtrace.sites/1\" }", "a document of kmemtrace-report; "),
            ("<!DOCTYPE html><p>", "a web page; "),
            ("# tracer: nop\n a-1 [000] d... 1.0: sched_switch: prev_comm=a\n", "a trace of the scheduler without"),
            (
                "[   12.345678] usb 1-1: new device\n[   12.345679] usb\n",
                "a kernel log without a report on memory; a log is",
            ),
            ("Nov 26 11:27:31 host kernel: usb 1-1: new\n", "a kernel log without a report on memory; a log is"),
            (
                "[  1.0] BUG: KASAN: slab-use-after-free in example_open+0x1c/0x40\n",
                "a report of KASAN on one bad access; it",
            ),
            ("TRACE kmalloc-64 alloc 0x00000000 inuse=3 fp=0x0\n", "a log of SLUB's trace of one cache; record"),
            ("      PAGE       PHYSICAL      MAPPING       INDEX CNT FLAGS\n", "the list of pages of crash's kmem -p"),
            ("Node 0, zone      DMA      1      0      0\n", "/proc/buddyinfo; read /proc/meminfo"),
            (
                "[1:2:3.4] (+?.?) host kmem_kfree: { cpu_id = 1 }, { call_site = 0x1, ptr = 0x2 }\n\
                 [1:2:3.5] (+0.1) host sched_switch: { cpu_id = 1 }, { prev_comm = \"a\" }\n",
                "the text of a trace of LTTng, by babeltrace; it is not read here",
            ),
            ("No data\n", "an empty list of the kernel"),
        ] {
            let described = described(text.as_bytes());
            assert!(described.as_deref().is_some_and(|what| what.starts_with(said)), "{text}: {described:?}");
        }
        for text in ["", "one\ntwo\n", "[section]\nkey=1\n", "<a>"] {
            assert_eq!(described(text.as_bytes()), None, "{text}");
        }
    }
}
