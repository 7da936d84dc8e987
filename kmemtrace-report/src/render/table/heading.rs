//! Text around tables: verdict, trace and filters above, explanations of marks below.

use std::io::{self, Write};

use jiff::Timestamp;
use kmemtrace::GroupKey;
use kmemtrace::documents::head::{NamesMembers, TraceMembers};
use kmemtrace::documents::latency::{SpanRow, Spans};
use kmemtrace::documents::leaks::Unjudged;
use kmemtrace::documents::stacks::StackCounts;
use kmemtrace::documents::{Body, Head};
use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::kernel::release::Release;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units;
use kmemtrace_abi::trace::TextInfo;

use super::about::About;
use super::cells::{count, counted, moment};
use super::options::{TableOptions, TellsCgroups};
use crate::of_text::with_article;
use crate::render::grid::cell::Notes;
use crate::render::wrap;
use crate::terminal::screen::Paint;
use crate::terminal::zone;

/// Seconds from 1970 to 1990: no machine runs for so long.
const FIRST_DATE: u64 = 631_152_000;

/// Name of an input that is a stream.
const STREAM: &str = "-";

/// Remedy for a trace without symbols.
const NAME_AFTERWARDS: &str =
    "Name call-sites with --kallsyms FILE: a copy of /proc/kallsyms of the same boot, or the kernel's System.map.";

/// Writes the lines above a view: verdict, trace, and what was asked for.
pub(crate) fn heading(head: &Head<'_>, body: &Body<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let line = parts(&first_line(head, body, options), options);
    let word = head.completeness.verdict.to_uppercase();
    let paint = match head.completeness.verdict {
        "complete" => Paint::Good,
        "corrupt" => Paint::Bad,
        _ => Paint::Warning,
    };
    let rest = line.strip_prefix(&word).unwrap_or_default();
    writeln!(out, "{}{rest}", options.screen.paint(paint, &word))?;
    if head.completeness.verdict != "complete" && head.trace.text.is_some() {
        text("Lines that are missing or make no sense are not in the figures.", options, out)?;
    } else if head.completeness.verdict == "truncated" && options.is_being_recorded {
        text("It is still being recorded: figures are those of the events written so far.", options, out)?;
    } else if head.completeness.verdict != "complete" {
        text("Figures are estimates where events are missing; kmemtrace-check shows where.", options, out)?;
    }
    if head.completeness.saturated {
        text("A sum that does not fit 64 bits is shown as the largest number that does.", options, out)?;
    }
    if let Some(why) = head.trace.lacks_symbols {
        text(&format!("{why}. {NAME_AFTERWARDS}"), options, out)?;
    }
    if lacks_sources(head) {
        const SOURCES: &str =
            "No source files are known: name them with --vmlinux, --kernel or --names (docs/names.md).";
        text(SOURCES, options, out)?;
    }
    let about = About::of(&head.trace, body);
    if let Some(line) = deferred(&head.trace).filter(|_| about.has_bounds) {
        text(&line, options, out)?;
    }
    cgroups(head, options, out)?;
    if head.query.by.contains(&GroupKey::Tgid.name()) && head.trace.text.is_none() {
        text(
            "TGID is -: only texts of page_owner tell the process of a thread. Use --by task or --by comm.",
            options,
            out,
        )?;
    }
    for line in unjudged(body, options.time.is_some()) {
        text(line, options, out)?;
    }
    if options.red_zones > 0 && about.has_waste {
        let caches = counted(options.red_zones as u64, "cache");
        text(&format!("Waste contains red zones: slub_debug is on for {caches}."), options, out)?;
    }
    for line in untold(&head.trace, about) {
        text(line, options, out)?;
    }
    for line in of_text(&head.trace, body) {
        text(line, options, out)?;
    }
    let is_one_text = head.trace.text.is_some_and(|text| text.has_times) && options.more_inputs == 0;
    if is_one_text && matches!(body, Body::Growth(_)) {
        const AGES: &str =
            "By the times at which live blocks were allocated: freed ones are not known, so a rise here is not growth.";
        text(AGES, options, out)?;
    }
    if about.has_areas {
        text("Rows of vmalloc are address space, not memory.", options, out)?;
    }
    writeln!(out, "{}", parts(&trace(&head.trace, options), options))?;
    let time = options.time.as_ref().map(|time| format!("time {time}"));
    let at = options.at.as_ref().map(|at| format!("at {at}"));
    let asked: Vec<String> = options.filter().into_iter().chain(time).chain(at).collect();
    if !asked.is_empty() {
        writeln!(out, "{}", options.screen.paint(Paint::Strong, &parts(&asked, options)))?;
    }
    writeln!(out)
}

/// What an input of another program does not tell, and what follows from it.
fn untold(trace: &TraceMembers<'_>, about: About) -> Vec<&'static str> {
    const HASHES_NULL: std::ops::Range<Release> = Release(5, 2, 0)..Release(5, 7, 0);
    let is_hashed = trace.addresses == Some("hashed");
    let hashes_null = trace.kernel.and_then(Release::parse).is_some_and(|release| HASHES_NULL.contains(&release));
    [
        (is_hashed, "Addresses are hashed, and two may look the same, so all findings are suspect."),
        (
            is_hashed && hashes_null,
            "This kernel hashes null pointers, too: frees of null count as frees of an address.",
        ),
        (
            about.has_live && trace.scope.is_none(),
            "The input does not tell whether only some tasks, or allocations that a filter takes, were recorded.",
        ),
    ]
    .into_iter()
    .filter_map(|(holds, line)| holds.then_some(line))
    .collect()
}

/// Says what a cgroup is, where rows or filters are made of them.
fn cgroups(head: &Head<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let is_filtered = options.filters.iter().any(|(name, _)| name == "cgroup");
    if !is_filtered && !head.query.by.contains(&GroupKey::Cgroup.name()) {
        return Ok(());
    }
    const CGROUPS: &str =
        "A cgroup is that of the thread that ran: work done for others (kworkers, softirqs) counts for it.";
    let unknown = match options.cgroups {
        TellsCgroups::Nothing => {
            "record with -e slab, page or latency, which record events of threads and cgroups, too"
        }
        TellsCgroups::Some | TellsCgroups::RootAlone => "no event told the cgroup of the thread",
    };
    text(&format!("{CGROUPS} (unknown): {unknown}."), options, out)?;
    if options.cgroups == TellsCgroups::RootAlone {
        const ROOT: &str = "All threads were in / when the recording began: the machine has cgroups of version 1, or none. Paths are those \
                            of version 2.";
        text(ROOT, options, out)?;
    }
    Ok(())
}

/// True if rows are made of source files, and no names tell any.
fn lacks_sources(head: &Head<'_>) -> bool {
    let of_sources = [GroupKey::Folder, GroupKey::File, GroupKey::Source, GroupKey::Area].map(GroupKey::name);
    let modules = &head.names.modules;
    let has_none = matches!(head.names.kernel.from, None | Some("symbols")) && modules.dwarf == 0 && modules.path == 0;
    has_none && head.trace.text.is_none() && head.query.by.iter().any(|key| of_sources.contains(key))
}

/// What a text of one moment does not tell, or tells in a way of its own.
fn of_text(trace: &TraceMembers<'_>, body: &Body<'_>) -> Vec<&'static str> {
    let Some(info) = trace.text else { return Vec::new() };
    let is_of_lines = trace.input == "allocinfo";
    let has_sums = !matches!(body, Body::Live(_));
    [
        (
            is_of_lines && has_sums,
            "Sums are sums of lines: a page of a slab and the objects in it count twice.",
        ),
        (
            info.lacks_lines && is_of_lines,
            "Lines may be missing, because the text has no line \"allocinfo - version\": sums over all lines are not known.",
        ),
        (info.is_rounded, "Sizes in the text are rounded."),
        (info.has_handles_alone, "The stacks of these handles are in show_stacks_handles: name that file, too."),
    ]
    .into_iter()
    .filter_map(|(holds, line)| holds.then_some(line))
    .collect()
}

/// Reasons for rows of leaks without a verdict; `is_window`: `--time` chose the events.
fn unjudged(body: &Body<'_>, is_window: bool) -> Vec<&'static str> {
    let Body::Leaks(view) = body else { return Vec::new() };
    let line = |why: &Unjudged| match why {
        Unjudged::ShortWindow if is_window => {
            "No verdict: the events in this time span less than 2 seconds; choose a longer --time."
        }
        Unjudged::ShortWindow => {
            "No verdict: the recording is shorter than 2 seconds; record for a minute, with kmemtraced -d 60."
        }
        Unjudged::Sequence => "No verdict: the events have numbers and no times; record with kmemtraced.",
        Unjudged::NoFrees => "No verdict on kinds whose frees were not recorded; add their free events to -e.",
    };
    view.unjudged.iter().map(line).collect()
}

/// Deferred frees that the recording does not have; told if a row is an upper bound because of them or of others.
fn deferred(trace: &TraceMembers<'_>) -> Option<String> {
    let is_unseen = match trace.deferred {
        Some("unseen") => true,
        Some("partly") => false,
        _ => return None,
    };
    if is_unseen {
        const UNSEEN: &str = "Frees by kfree_rcu were not recorded, so rows marked <= may hold freed objects; kmemtraced doctor \
                              prints whether a kernel can record them.";
        return Some(UNSEEN.to_owned());
    }
    let from = trace.deferred_from.map(|from| trace.keys().moment(from, trace.first, 9));
    let begin = from.as_deref().and_then(|from| from.split(' ').next());
    let remedy = begin.map_or(String::new(), |begin| format!("; --time {begin}, leaves that part out"));
    let partly = "Frees by kfree_rcu were not recorded from the start, so rows marked <= may hold freed objects";
    Some(format!("{partly}{remedy}."))
}

/// Parts of a heading in one line: trace, verdict, names, and what was asked for.
#[cfg(feature = "full")]
pub(crate) fn brief(head: &Head<'_>, shows: Option<&str>, options: &TableOptions) -> Vec<String> {
    let time = options.time.as_ref().map(|time| format!("time {time}"));
    let origin = trace(&head.trace, options).into_iter().take(2);
    let shows = shows.map(str::to_owned);
    origin
        .chain(verdict(head, None))
        .chain(shows)
        .chain(names(&head.names))
        .chain(head.trace.lacks_symbols.map(str::to_owned))
        .chain(options.filter())
        .chain(time)
        .collect()
}

/// Writes a text as lines that fit.
pub(crate) fn text(text: &str, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", wrap::words(text, 0, options.screen.width, options.screen.cut_mark()))
}

/// Writes a text whose lines after the first begin with `indent` blanks.
pub(crate) fn indented(text: &str, indent: usize, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", wrap::words(text, indent, options.screen.width, options.screen.cut_mark()))
}

/// Writes a strong line over a part of a view.
pub(crate) fn title(title: &str, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let title = wrap::words(title, 0, options.screen.width, options.screen.cut_mark());
    writeln!(out, "{}", options.screen.paint(Paint::Strong, &title))
}

fn parts(parts: &[String], options: &TableOptions) -> String {
    parts_behind(parts, 2, options)
}

/// Parts as lines that fit, broken between parts; lines after the first begin with `indent` blanks.
pub(crate) fn parts_behind(parts: &[String], indent: usize, options: &TableOptions) -> String {
    wrap::parts(parts, indent, options.screen.width, options.screen.cut_mark())
}

fn verdict(head: &Head<'_>, events: Option<u64>) -> Vec<String> {
    let complete = &head.completeness;
    let mut line = vec![complete.verdict.to_uppercase()];
    if let Some(text) = head.trace.text {
        line.push(about_text(text));
        line.extend(skipped(head));
        return line;
    }
    line.extend(events.map(|events| counted(events, "event")));
    let lost = complete.lost_events;
    // A cut file has a gap with an unknown count, so "0 lost, 1 gap" is right and "0 lost in 1 gap" is not.
    let joined = if lost.is_some_and(|lost| lost > 0) { " in" } else { "," };
    let gaps = if complete.gaps > 0 { format!("{joined} {}", counted(complete.gaps, "gap")) } else { String::new() };
    line.push(match lost {
        Some(lost) => format!("{} lost{gaps}", units::grouped(lost)),
        None => format!("lost: unknown{gaps}"),
    });
    let files: Vec<String> = complete.truncated_files.iter().map(|f| escape(f.as_bytes()).into_owned()).collect();
    let cpus: Vec<String> = complete.missing_cpus.iter().map(u32::to_string).collect();
    for (what, names) in [("cut", files), ("no file for CPU", cpus)] {
        if !names.is_empty() {
            line.push(format!("{what}: {}", names.join(", ")));
        }
    }
    line
}

/// Name of a text, and how much it has: `a page_owner dump of one moment: 12,345 blocks`.
fn about_text(text: &TextInfo) -> String {
    let (noun, of) = text.unit.find(" of ").map_or((text.unit, ""), |at| text.unit.split_at(at));
    let unit = if text.entries == 1 { format!("{}{of}", noun.trim_end_matches('s')) } else { text.unit.to_owned() };
    let entries = if text.entries == 0 { String::new() } else { format!(": {} {unit}", count(text.entries)) };
    format!("{} of one moment{entries}", with_article(text.title))
}

/// Lines and blocks of a text that were left out.
fn skipped(head: &Head<'_>) -> Option<String> {
    let skipped = head.completeness.skipped?;
    let parts = [(skipped.skipped_lines, "line"), (skipped.skipped_blocks, "block")];
    let parts: Vec<String> =
        parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, noun)| format!("{} skipped", counted(n, noun))).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Verdict, names, and bytes whose callers are not known.
fn first_line(head: &Head<'_>, body: &Body<'_>, options: &TableOptions) -> Vec<String> {
    let shown = match body {
        Body::Holders(view) => Some((view.shows.as_str(), view.events, view.stacks)),
        Body::Tree(view) => view.keys.map(|keys| (view.shows, keys.events, keys.stacks)),
        _ => None,
    };
    let events = match body {
        Body::Summary(summary) => Some(summary.events.total),
        Body::Latency(view) => Some(view.events),
        _ => shown.map(|(_, events, _)| events),
    };
    let mut line = verdict(head, events);
    if let Some((shows, _, stacks)) = shown {
        line.insert(1, shows.to_owned());
        line.extend(stack_counts(stacks, head.query.time.is_some()));
    } else if let Body::Tree(view) = body {
        // Folders have objects of slabs unless they say so.
        line.splice(1..1, view.other_space().map(str::to_owned));
    }
    if let Body::Latency(view) = body {
        line.extend(totals(view));
    }
    if let Body::Stalls(view) = body {
        let total = super::cells::duration(view.total);
        line.push(format!("{}, {total} waited", counted(view.count, "stall")));
    }
    if options.is_default_input {
        let date = head.trace.begun.and_then(|begun| local(begun, "%Y-%m-%d %H:%M %:z"));
        let date = date.map_or(String::new(), |date| format!(" of {date}"));
        line.insert(1, format!("./{}{date}", options.title));
    }
    line.extend(names(&head.names));
    line.extend(wrapped(body, options));
    line
}

/// Stalls in the first line of `latency`.
fn totals(view: &Spans<'_>) -> Vec<String> {
    let sum = |figure: fn(&SpanRow<'_>) -> u64| view.spans.iter().map(figure).fold(0, u64::saturating_add);
    let stalls = view.tasks.iter().fold(0u64, |sum, task| sum.saturating_add(task.count));
    let mut line = format!("{} of {}", counted(stalls, "stall"), counted(view.tasks.len() as u64, "task"));
    if stalls > 0 {
        let waited = view.tasks.iter().try_fold(0u64, |sum, task| Some(sum.saturating_add(task.total?)));
        let longest = view.tasks.iter().filter_map(|task| task.max).max();
        line += &format!(", {} waited, longest {}", super::cells::duration(waited), super::cells::duration(longest));
    }
    let unpaired = [
        (sum(|row| row.suspect.count), "suspect"),
        (sum(|row| row.unfinished), "unfinished"),
        (sum(|row| row.unstarted), "unstarted"),
    ];
    let unpaired = unpaired.iter().filter(|(count, _)| *count > 0);
    let unpaired: Vec<String> = unpaired.map(|(count, what)| format!("{} {what}", units::grouped(*count))).collect();
    vec![line, if unpaired.is_empty() { "all paired".to_owned() } else { unpaired.join(", ") }]
}

/// Numbers of stacks, where the trace has some: those of the whole trace, of which a window has only a part.
fn stack_counts(stacks: StackCounts, is_window: bool) -> Option<String> {
    let StackCounts { seen, distinct, unmatched } = stacks;
    let unmatched = if unmatched > 0 { format!(", {} unmatched", count(unmatched)) } else { String::new() };
    let of = if is_window { " in the whole trace" } else { "" };
    (seen > 0).then(|| format!("{}, {} distinct{unmatched}{of}", counted(seen, "stack"), count(distinct)))
}

/// Origin of the names, where it is not the trace alone.
fn names(names: &NamesMembers) -> Vec<String> {
    let NamesMembers { kernel, modules, rejected, broken_units } = names;
    let broken =
        (*broken_units > 0).then(|| format!("{} of debug information damaged", counted(*broken_units, "unit")));
    let checked = match kernel.checked {
        Some(check) => format!("checked by {check}"),
        None => "not checked".to_owned(),
    };
    let from = match kernel.from {
        Some("dwarf") => format!("names: DWARF ({checked})"),
        Some("objects") => format!("names: objects of a built tree ({checked})"),
        Some("map") => "names: map of another build".to_owned(),
        _ if modules.dwarf > 0 => "names: symbols".to_owned(),
        _ => return rejected_files(rejected.len()).into_iter().chain(broken).collect(),
    };
    let modules =
        if modules.dwarf > 0 { format!(", {}", counted(modules.dwarf as u64, "module")) } else { String::new() };
    std::iter::once(from + &modules).chain(rejected_files(rejected.len())).chain(broken).collect()
}

fn rejected_files(files: usize) -> Option<String> {
    (files > 0).then(|| format!("{} of names rejected", counted(files as u64, "file")))
}

/// Live bytes of a tree whose callers are not known.
fn wrapped(body: &Body<'_>, options: &TableOptions) -> Option<String> {
    let Body::Tree(tree) = body else { return None };
    let bytes = super::cells::bytes(tree.wrapped_live, options);
    (tree.wrapped_live > 0).then(|| format!("~{bytes} live known by wrapper only"))
}

/// Parts that identify the recording.
fn trace(trace: &TraceMembers<'_>, options: &TableOptions) -> Vec<String> {
    // Path and date of a trace that was not named stand in the first line.
    let is_unnamed = options.is_default_input || options.title == STREAM;
    let mut head = if is_unnamed { Vec::new() } else { vec![options.title.clone()] };
    if let Some(kernel) = trace.kernel {
        let [kernel, arch] = [kernel, trace.arch.unwrap_or_default()].map(|text| escape(text.as_bytes()));
        head.push(format!("Linux {kernel} {arch}").trim_end().to_owned());
    }
    head.extend(trace.cpus.map(|cpus| counted(cpus as u64, "CPU")));
    if let Some(text) = trace.text {
        if let Some(title) = head.first_mut().filter(|_| text.slices > 0 && options.more_inputs > 0) {
            *title += &format!(" and {}", counted(options.more_inputs as u64, "more file"));
        }
        head.extend((text.slices > 0).then(|| format!("the last of {} texts", text.slices)));
        head.extend((!text.others.is_empty()).then(|| format!("also there: {}", text.others.join(", "))));
        // Logs have times since the machine's start, which are no dates.
        let date = text.taken_at.and_then(|at| u64::try_from(at).ok()).filter(|at| *at >= FIRST_DATE);
        head.extend(date.and_then(time_of_day).map(|at| format!("taken {at}")));
        return head;
    }
    let last = moment(trace, trace.last);
    head.push(match trace.keys().unit {
        Unit::Records => format!("numbers {} to {}", count(trace.first), count(trace.last)),
        Unit::Ticks => format!("recorded -, to {last}"),
        // The first and the last event of the window.
        Unit::Nanoseconds if options.time.is_some() => format!("events span {}", last.trim_start_matches('+')),
        Unit::Nanoseconds => format!("recorded {}", last.trim_start_matches('+')),
    });
    let begun = trace.begun.filter(|_| !options.is_default_input).and_then(time_of_day);
    head.extend(begun.map(|time| format!("begun {time}")));
    if trace.scope == Some("tasks") {
        head.push("some tasks alone: frees by others are unseen".to_owned());
    }
    if let Some(filter) = trace.filtered {
        head.push(format!("recorded only allocations with {}", escape(filter.as_bytes())));
    }
    if let Some(since_boot) = &trace.since_boot {
        let first = trace.keys().moment(trace.first, 0, 6);
        let first = first.trim_start_matches('+');
        let lost = since_boot.lost_before_first.map_or("an unknown number".into(), units::grouped);
        head.push(format!("since {first} after boot, {lost} lost before"));
    }
    head
}

/// A time in seconds since 1970 in the reader's time zone, with its offset: `2026-11-26 09:00:30 +01:00`.
fn time_of_day(seconds: u64) -> Option<String> {
    local(seconds, "%Y-%m-%d %H:%M:%S %:z")
}

/// A time in seconds since 1970 in the reader's time zone, in a form of strftime.
fn local(seconds: u64, form: &str) -> Option<String> {
    let time = Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
    Some(time.to_zoned_datetime(zone::local()).strftime(form).to_string())
}

/// Time of day at an order key, in the reader's time zone: `14:02:11`. `None` where the recorder's clock at the start is not known, or the
/// first event of the trace is not that of its start.
pub(super) fn clock_time(trace: &TraceMembers<'_>, at: u64, options: &TableOptions) -> Option<String> {
    let is_from_start = trace.since_boot.is_none() && options.time.is_none() && trace.keys().unit == Unit::Nanoseconds;
    let begun = trace.begun.filter(|_| is_from_start)?;
    let seconds = begun.saturating_add(at.saturating_sub(trace.first) / 1_000_000_000);
    local(seconds, "%H:%M:%S")
}

/// Writes the explanation of each mark that the tables of a view have.
pub(crate) fn footer(notes: Notes, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    const BOUNDS: &str = "<= marks an upper bound: objects of this row are also freed on paths without events, so some of them \
                          may be gone.";
    const PAGES: &str = "Page events carry no call-site without stacks.";
    const WRAPPERS: &str = "~ marks a function that allocates for its callers: which of them is not known.";
    const WITH_STACKS: &str = "~ marks a function that allocates for its callers: --by stack shows them.";
    const RECLAIMABLE: &str = "* marks memory that the kernel takes back by itself when it is short of it.";
    let lines = [
        (notes.has_bounds, BOUNDS),
        (notes.has_reclaimable, RECLAIMABLE),
        (notes.has_wrappers, if options.has_stacks { WITH_STACKS } else { WRAPPERS }),
        (notes.has_pages_without_site, PAGES),
    ];
    for (number, (_, line)) in lines.into_iter().filter(|(is_needed, _)| *is_needed).enumerate() {
        if number == 0 {
            writeln!(out)?;
        }
        text(line, options, out)?;
    }
    Ok(())
}

/// Writes the reason why a view has no rows: missing events, else filters, else the time window, else `otherwise`.
pub(crate) fn empty(otherwise: &str, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    if let Some(missing) = &options.missing {
        return text(&format!("Nothing to show: {missing}."), options, out);
    }
    let reason = match (options.filter(), &options.time) {
        (Some(filter), _) => match options.selected {
            Some((0, all)) => format!("{filter}: 0 of {}", counted(all, "allocation")),
            Some((taken, all)) => format!("{filter}: {} of {}: {otherwise}", count(taken), counted(all, "allocation")),
            None => format!("{filter}: {otherwise}"),
        },
        (None, Some(time)) => format!("time {time}: {otherwise}"),
        (None, None) => otherwise.to_owned(),
    };
    text(&reason, options, out)
}

/// Writes the number of rows that are not shown.
pub(crate) fn more_rows(rows: u64, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    if rows == 0 {
        return Ok(());
    }
    text(&format!("({}: --top N)", counted(rows, "more row")), options, out)
}
