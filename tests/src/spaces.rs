//! Recordings of per-CPU memory and vmalloc areas in a guest, compared with the kernel's own text of the same events.

use std::collections::BTreeSet;
use std::path::Path;

use crate::guest::checked;
use crate::programs::{json, run_to};
use crate::recording::Directory;
use crate::views;

/// Records a load of processes and network namespaces. A second instance counts the whole machine; a shell writes its process id, so that
/// those of the load are known: they are larger. The last second is quiet, because each instance reads the clock for itself.
pub const SCRIPT: &str = "
    spaces=percpu
    [ ! -e $tracing/events/vmalloc ] || spaces=percpu,vmalloc
    refused=0
    kmemtraced -e vmalloc -d 0.1 -o /tmp/vmalloc 2>/out/vmalloc.messages || refused=$?
    echo $refused >/out/vmalloc.status
    kmemtraced doctor --quick | grep -E '^(percpu|vmalloc) ' >/out/spaces.probe
    ls $tracing/per_cpu | grep -c ^cpu >/out/cpus
    begin percpu/percpu_alloc_percpu percpu/percpu_alloc_percpu_fail percpu/percpu_free_percpu \\
        vmalloc/alloc_vmap_area vmalloc/free_vmap_area_noflush
    echo 0 >$count/options/event-fork
    echo >$count/set_event_pid
    cat >/tmp/load <<'END'
        for i in $(seq 8); do unshare -n true; done
        for i in $(seq 24); do sleep 0.5 & done
        wait
        sleep 1.5
END
    kmemtraced -v -e $spaces -o /out/spaces -- sh -c 'echo $$ >/out/spaces.shell; sh /tmp/load; true' 2>/out/spaces.messages
    end spaces
    kmemtraced -v -e all -d 0.1 -o /out/all 2>/out/all.messages
";

/// Allocations of one kind by the load's threads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Figures {
    allocs: u64,
    /// Objects freed in the recording, by whatever thread.
    frees: u64,
    bytes: u64,
    failed: u64,
}

/// Release of the kernel, without its last number.
fn release(trace: &Path) -> (u64, u64) {
    let summary = json(&views::printed("summary", trace));
    let release = summary["trace"]["kernel"].as_str().unwrap_or_default().to_owned();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Checks what [`SCRIPT`] left.
pub fn assert_recorded(out: &Directory) {
    let trace = out.file("spaces");
    let messages = out.text("spaces.messages");
    assert!(messages.contains("   0 lost\n"), "{messages}");
    assert_eq!(checked(&trace).0, "ok");
    views::assert_invariants("spaces", &trace);
    let overruns = out.text("spaces.overruns");
    assert!(overruns.lines().all(|line| line.ends_with(": 0")), "the second instance lost events: {overruns}");
    let release = release(&trace);
    assert_offer(out, release >= (6, 2));
    for (kind, least) in [("percpu", 100), ("vmalloc", 8)].into_iter().take(if release >= (6, 2) { 2 } else { 1 }) {
        let (expected, found) = (of_text(out, kind), of_report(out, kind));
        assert_eq!(found, expected, "{kind}: the report's figures are not those of the kernel's text");
        assert!(found.allocs >= least && found.frees > 0, "{kind}: the load has done too little: {found:?}");
    }
    let lines = views::events(&trace);
    for (event, has_site) in [("percpu_alloc_percpu", release >= (5, 19)), ("alloc_vmap_area", false)] {
        let of_event: Vec<_> = lines.iter().filter(|line| line["event"] == event).collect();
        let has_stack = |line: &&&serde_json::Value| line["stack"].as_array().is_some_and(|stack| stack.len() > 2);
        let with = of_event.iter().filter(has_stack).count();
        let expected = if has_site { 0 } else { of_event.len() };
        assert_eq!(with, expected, "{event}: stacks of {} events: {messages}", of_event.len());
    }
}

/// Checks what the kernel offers, by `probe`, by the profile `all`, and by the profile `vmalloc`, which needs its events.
fn assert_offer(out: &Directory, has_vmalloc: bool) {
    let (vmalloc, status) = (out.text("vmalloc.messages"), out.text("vmalloc.status"));
    let (probe, all) = (out.text("spaces.probe"), out.text("all.messages"));
    assert!(probe.contains("percpu     all events\n"), "{probe}");
    assert!(all.contains("event percpu/percpu_alloc_percpu\n") && all.contains("event kmem/mm_page_alloc\n"), "{all}");
    let lacks = all.contains("event vmalloc/alloc_vmap_area: not in this kernel\n");
    if has_vmalloc {
        assert_eq!((status.trim(), lacks), ("0", false), "{vmalloc}{all}");
        assert!(vmalloc.contains("stacks with vmalloc areas, by a trigger\n"), "{vmalloc}");
        assert!(probe.contains("vmalloc    all events\n"), "{probe}");
    } else {
        assert_eq!((status.trim(), lacks), ("2", true), "{vmalloc}{all}");
        let refused = "kmemtraced: -e vmalloc: this kernel has no vmalloc events: Linux 6.2 or later\n";
        assert_eq!(vmalloc, refused);
        assert!(probe.contains("vmalloc    no events: Linux 6.2 or later is required\n"), "{probe}");
    }
}

/// Sums of the report's rows of the load's threads.
fn of_report(out: &Directory, kind: &str) -> Figures {
    let words = ["sites", "--by", "pid,site", "--kind", kind, "--format", "json"];
    let document = json(&run_to(0, "kmemtrace-report", &words, &[&out.file("spaces")]));
    let shell = shell(out);
    let rows = document["rows"].as_array().into_iter().flatten();
    let of_load = rows.filter(|row| row["pid"].as_i64().is_some_and(|pid| pid > shell));
    of_load.fold(Figures::default(), |sums, row| {
        let figure = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{kind}: {name} is no number: {row}"));
        assert_eq!(figure("requested"), figure("allocated"), "{row}");
        Figures {
            allocs: sums.allocs + figure("allocs"),
            frees: sums.frees + figure("frees"),
            bytes: sums.bytes + figure("allocated"),
            failed: sums.failed + figure("failed_allocs"),
        }
    })
}

/// Process id of the load's shell.
fn shell(out: &Directory) -> i64 {
    out.text("spaces.shell").trim().parse().unwrap_or(i64::MAX)
}

/// Figures by the text of the second instance, of events up to the recording's last one.
fn of_text(out: &Directory, kind: &str) -> Figures {
    let summary = json(&views::printed("summary", &out.file("spaces")));
    let last = summary["trace"]["last"].as_u64().unwrap_or(0) / 1000;
    let cpus: u64 = out.text("cpus").trim().parse().unwrap_or(0);
    let shell = shell(out);
    let text = out.text("spaces.text");
    let mut figures = Figures::default();
    let mut live = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(event) = Line::parse(line) else { continue };
        if event.micros > last {
            break;
        }
        let is_of_load = event.pid > shell;
        let size = event.number("size=").unwrap_or(0);
        match (kind, event.name) {
            ("percpu", "percpu_alloc_percpu") if is_of_load => {
                figures.allocs += 1;
                figures.bytes += size * cpus;
                live.insert(event.word("ptr=").to_owned());
            }
            ("vmalloc", "alloc_vmap_area") if is_of_load && event.number("failed=") == Some(0) => {
                figures.allocs += 1;
                figures.bytes += size;
                let address = event.number("va_start: ").unwrap_or(0);
                live.insert(format!("0x{address:x}"));
            }
            ("percpu", "percpu_alloc_percpu_fail") | ("vmalloc", "alloc_vmap_area") if is_of_load => {
                figures.failed += 1;
            }
            ("percpu", "percpu_free_percpu") => {
                figures.frees += u64::from(live.remove(event.word("ptr=")));
            }
            ("vmalloc", "free_vmap_area_noflush") => {
                figures.frees += u64::from(live.remove(event.word("va_start=")));
            }
            _ => {}
        }
    }
    figures
}

/// A line of a `trace` file: `COMM-PID [CPU] FLAGS SECONDS.MICROS: EVENT: FIELDS`.
struct Line<'a> {
    pid: i64,
    micros: u64,
    name: &'a str,
    fields: &'a str,
}

impl Line<'_> {
    fn parse(line: &str) -> Option<Line<'_>> {
        let (task, rest) = line.split_once(" [")?;
        let (head, rest) = rest.split_once(": ")?;
        let (name, fields) = rest.split_once(": ")?;
        let (seconds, micros) = head.rsplit(' ').next()?.split_once('.')?;
        let micros = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
        let pid = task.rsplit('-').next()?.trim().parse().ok()?;
        Some(Line { pid, micros, name, fields })
    }

    /// Text behind `name`, up to the next blank; empty where it is not there.
    fn word(&self, name: &str) -> &str {
        // Another field's name may end in `name`.
        let spaced = format!(" {name}");
        let rest = self.fields.strip_prefix(name).or_else(|| self.fields.split_once(&*spaced).map(|(_, rest)| rest));
        rest.unwrap_or_default().split(' ').next().unwrap_or_default()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.word(name).parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_both_kinds_are_read() {
        let percpu = "         unshare-101     [001] .....    12.345678: percpu_alloc_percpu: call_site=x+0x1/0x2 reserved=0 \
                      is_atomic=0 size=64 align=8 base_addr=000000005d9f off=12 ptr=00000000a1b2 bytes_alloc=512 gfp_flags=none";
        let line = Line::parse(percpu).unwrap();
        assert_eq!((line.pid, line.micros, line.name), (101, 12_345_678, "percpu_alloc_percpu"));
        assert_eq!((line.number("size="), line.word("ptr=")), (Some(64), "00000000a1b2"));
        let area = "  a b-c-7 [000] d..h1  1.000002: alloc_vmap_area: va_start: 18446683600570023936 size=20480 align=16384 \
                    vstart=0xffffc90000000000 vend=0xffffe8ffffffffff failed=0";
        let line = Line::parse(area).unwrap();
        assert_eq!((line.pid, line.number("failed=")), (7, Some(0)));
        assert_eq!(line.number("va_start: "), Some(0xffff_c900_0000_0000));
    }
}
