//! Lines above the table, and the line of keys.

use kmemtrace::live::{LiveGroup, LiveName, LiveSymbol, Snapshot, Totals};
use kmemtrace::{BySpace, Space};
use kmemtrace_abi::text::units::grouped;

use super::figures::{count, curve, long_bytes, long_change, moment, percent, window};
use super::rows::cut_mark;
use super::state::Sort;
use super::view::{Memory, Paint, Pen, Recording, ScreenView, WIDE};
use crate::render::cut;

/// Fall of MemFree below which a share of it says nothing, in bytes.
const LEAST_TAKEN: u64 = 16 << 20;

/// Part of a line: a text, its emphasis, and its rank: parts of the highest rank go first where the line is too short.
struct LinePart {
    text: String,
    paint: Paint,
    rank: u8,
}

fn part(text: impl Into<String>, paint: Paint, rank: u8) -> LinePart {
    LinePart { text: text.into(), paint, rank }
}

/// Draws the lines above the table; returns the number of the first line below them.
pub(super) fn draw(view: ScreenView<'_>, pen: &mut Pen<'_>) -> u16 {
    let lines = [
        title(view, pen.area().width),
        totals(view, pen.area().width),
        history(view, pen.area().width),
        settings(view, pen.area().width),
    ];
    for (y, parts) in (0..).zip(lines) {
        line(pen, y, parts);
    }
    4
}

/// Writes the parts that fit a line, two blanks between them.
fn line(pen: &mut Pen<'_>, y: u16, mut parts: Vec<LinePart>) {
    let width = pen.area().width;
    parts.retain(|part| !part.text.is_empty());
    while used(&parts, width) > usize::from(width) {
        let Some(rank) = parts.iter().map(|part| part.rank).max().filter(|rank| *rank > 0) else { break };
        parts.retain(|part| part.rank < rank);
    }
    let mut x = 0;
    for part in parts {
        pen.put(x, y, &part.text, part.paint);
        x = x.saturating_add(u16::try_from(cut::width(&part.text) + gap(width)).unwrap_or(u16::MAX));
    }
}

/// Blanks between two parts of a line.
fn gap(width: u16) -> usize {
    if width < WIDE { 2 } else { 3 }
}

/// Columns of the parts of a line, and of the gaps between them.
fn used(parts: &[LinePart], width: u16) -> usize {
    let texts = parts.iter().filter(|part| !part.text.is_empty());
    texts.map(|part| cut::width(&part.text) + gap(width)).sum::<usize>().saturating_sub(gap(width))
}

/// Program, trace, state of the recording, rate and loss.
fn title(view: ScreenView<'_>, width: u16) -> Vec<LinePart> {
    let ScreenView { snapshot, subject, state, .. } = view;
    let at = moment(snapshot.elapsed);
    let is_over = snapshot.is_over_memory;
    let (recording, paint) = match &subject.state {
        _ if state.is_frozen => {
            let goes_on = matches!(subject.state, Recording::Runs | Recording::Loads);
            (format!("FROZEN {at}{}", if goes_on { " (recording goes on)" } else { "" }), Paint::Warning)
        }
        _ if is_over => (format!("STOPPED {at} (out of --max-memory)"), Paint::Warning),
        Recording::Runs => (format!("REC {at}"), Paint::Strong),
        Recording::Loads => {
            let share = snapshot.bytes_read.saturating_mul(100) / snapshot.bytes.max(1);
            (format!("READING {share}% {at}"), Paint::Strong)
        }
        Recording::Plays => (format!("PLAY {at}"), Paint::Strong),
        Recording::Ended(reason) => (format!("ENDED {at} ({reason})"), Paint::Strong),
        Recording::Still => ("FROZEN (a text of page_owner)".to_owned(), Paint::Strong),
    };
    let is_lossy = snapshot.lost.is_none_or(|lost| lost > 0);
    let lost = match snapshot.lost {
        Some(0) => "0 lost".to_owned(),
        Some(lost) => format!("lost {}", grouped(lost)),
        None => "lost events".to_owned(),
    };
    let lost = if view.is_still() {
        if is_lossy { "incomplete".to_owned() } else { String::new() }
    } else if is_lossy {
        let cpus: Vec<String> = snapshot.lossy_cpus.iter().take(4).map(|cpu| format!("cpu{cpu}!")).collect();
        format!("{lost} {}", cpus.join(" ")).trim_end().to_owned()
    } else {
        lost
    };
    let skipped = match snapshot.skipped {
        0 => String::new(),
        // Before the first event that was read there is no time to count from.
        1..50_000_000 => "SKIPPED, live figures are estimates".to_owned(),
        skipped => format!("SKIPPED {:.1} s, live figures are estimates", skipped as f64 / 1e9),
    };
    let has_skipped = !skipped.is_empty();
    let unmatched = match snapshot.stacks_unmatched {
        0 => String::new(),
        1 => "1 stack unmatched".to_owned(),
        stacks => format!("{} stacks unmatched", grouped(stacks)),
    };
    let lag = snapshot.lag.filter(|_| matches!(subject.state, Recording::Runs | Recording::Loads));
    let lag = lag.map_or(String::new(), |lag| format!("lag {:.1} s", lag as f64 / 1e9));
    let rate = if view.is_still() { String::new() } else { format!("{} ev/s", count(snapshot.events_now)) };
    let bytes = subject.bytes_now.filter(|_| width >= WIDE);
    let bytes = bytes.map_or(String::new(), |bytes| format!("{:.1} MiB/s", bytes as f64 / f64::from(1 << 20)));
    let symbols = known_symbols(view).filter(|_| width >= WIDE);
    let symbols = symbols.map_or(String::new(), |percent| format!("symbols {percent}%"));
    vec![
        part("kmemtrace", Paint::Strong, 6),
        part(&subject.name, Paint::Plain, if has_skipped { 5 } else { 4 }),
        part(&subject.machine, Paint::Plain, 7),
        part(recording, paint, 0),
        part(rate, Paint::Plain, 3),
        part(bytes, Paint::Plain, 9),
        part(lost, if is_lossy { Paint::Warning } else { Paint::Plain }, 1),
        part(skipped, Paint::Warning, 0),
        part(unmatched, Paint::Warning, 4),
        part(lag, Paint::Plain, if has_skipped { 8 } else { 2 }),
        part(symbols, Paint::Plain, 9),
    ]
}

/// Share of the addresses on the screen that have a symbol, in percent, rounded down; `None` where there are no addresses.
fn known_symbols(view: ScreenView<'_>) -> Option<usize> {
    let (mut all, mut known) = (0, 0);
    let mut count = |site: u64, symbol: &Option<LiveSymbol>| {
        all += usize::from(site != 0);
        known += usize::from(site != 0 && symbol.is_some());
    };
    for row in view.snapshot.rows.iter().chain(&view.snapshot.below) {
        match &*row.name {
            LiveName::Site(site, symbol) => count(*site, symbol),
            LiveName::Stack(frames) => frames.iter().for_each(|(frame, symbol)| count(*frame, symbol)),
            LiveName::Module(_) | LiveName::Task(..) | LiveName::Cgroup(_) | LiveName::Cache(_) | LiveName::Use(_) => {}
        }
    }
    (known * 100usize).checked_div(all)
}

/// Totals of each space.
fn totals(view: ScreenView<'_>, width: u16) -> Vec<LinePart> {
    let seconds = window(view.state.window());
    let short = seconds.replace(' ', "");
    let all = Space::PAGES_FIRST.into_iter().map(|space| (space.name(), &view.snapshot.totals[space]));
    let mut parts = Vec::new();
    for (name, totals) in all.filter(|(_, totals)| totals.allocs > 0) {
        let Totals { live, peak, peak_after, growth, .. } = *totals;
        let first = parts.is_empty();
        // The second figure of a narrow line is live bytes as the first one is.
        let word = if first || width >= WIDE { " live" } else { "" };
        if view.is_still() {
            let live = if live == 0 { "-".to_owned() } else { long_bytes(live) };
            parts.push(part(format!("{name} {live} live"), Paint::Plain, 0));
            continue;
        }
        let live = format!("{name} {}{word} {}/{short}", long_bytes(live), long_change(growth));
        parts.push(part(live, Paint::Plain, 0));
        parts.push(part(format!("peak {}", long_bytes(peak)), Paint::Plain, if first { 1 } else { 2 }));
        parts.push(part(format!("at {}", moment(peak_after)), Paint::Plain, 3));
    }
    parts
}

/// Curve of live bytes, of the first space that was recorded.
fn history(view: ScreenView<'_>, width: u16) -> Vec<LinePart> {
    if view.is_still() {
        return vec![part("peaks, changes and frees are not in this text", Paint::Faint, 0)];
    }
    let has_any = |space: &Space| view.snapshot.totals[*space].allocs > 0;
    let space = Space::PAGES_FIRST.into_iter().find(has_any).unwrap_or(Space::Slab);
    let label = format!("live, {}", window(view.state.window()));
    let (memory, buffers) = (memory(view, width), buffers(view));
    // Three gaps stand between the parts, each of two or three blanks.
    let gaps = if width < WIDE { 8 } else { 9 };
    let room = label.len() + memory.len().max(16) + buffers.len() + gaps;
    let points = usize::from(width).saturating_sub(room).min(view.snapshot.curve.len());
    let of = |live: &BySpace<u64>| live[space];
    // Each bar is the greatest value of its share of the points.
    let all = &view.snapshot.curve;
    let bars = (0..points).map(|bar| {
        let share = bar * all.len() / points..((bar + 1) * all.len() / points).max(bar * all.len() / points + 1);
        all.get(share).unwrap_or_default().iter().map(of).max().unwrap_or(0)
    });
    let bars: Vec<u64> = bars.collect();
    let bars = part(curve(&bars, view.look.is_unicode), Paint::Plain, 0);
    let is_lossy = view.snapshot.filled.iter().any(|(cpu, _)| view.snapshot.lossy_cpus.contains(cpu));
    let paint = if is_lossy { Paint::Warning } else { Paint::Plain };
    vec![part(label, Paint::Plain, 0), bars, part(buffers, paint, 2), part(memory, Paint::Plain, 1)]
}

/// Buffers of CPUs that are named one by one.
const MOST_BUFFERS: usize = 4;

/// Part of the kernel's buffers that was full lately, `!` where events were lost: of each CPU, or of the fullest where they are many.
fn buffers(view: ScreenView<'_>) -> String {
    let Snapshot { filled, lossy_cpus, .. } = view.snapshot;
    let percent = |filled: u32, is_lossy: bool| format!(" {}%{}", filled.div_ceil(10), if is_lossy { "!" } else { "" });
    match filled.iter().map(|(_, filled)| *filled).max() {
        None => String::new(),
        Some(most) if filled.len() > MOST_BUFFERS => format!("buffers up to{}", percent(most, !lossy_cpus.is_empty())),
        Some(_) => {
            let each = filled.iter().map(|(cpu, filled)| percent(*filled, lossy_cpus.contains(cpu)));
            format!("buffers{}", each.collect::<String>())
        }
    }
}

/// Memory of the machine that is recorded, and the share of its fall that live pages explain.
fn memory(view: ScreenView<'_>, width: u16) -> String {
    let Some(Memory { available, taken }) = view.subject.memory else { return String::new() };
    let text = format!("MemAvailable {}", long_bytes(available));
    let pages = &view.snapshot.totals[Space::Pages];
    match taken.filter(|taken| width >= WIDE && pages.allocs > 0 && *taken >= LEAST_TAKEN) {
        Some(taken) => format!("{text}, traced explains {}", percent(pages.live, taken)),
        None => text,
    }
}

/// Steps that make room for a filter in the line of settings: other groupings, the window, the words for the filter's begin, the mark.
const STEPS: u8 = 4;

/// Groupings, sort key, window, filter and mark. A filter is always there: without it, its figures would pass for the machine's.
fn settings(view: ScreenView<'_>, width: u16) -> Vec<LinePart> {
    let filter = view.state.filter.text.as_str();
    if filter.is_empty() {
        return settings_after(view, 0, "");
    }
    let filter = format!("filter {filter}");
    for step in 0..=STEPS {
        let parts = settings_after(view, step, &filter);
        if used(&parts, width) <= usize::from(width) {
            return parts;
        }
    }
    let others = used(&settings_after(view, STEPS, ""), width) + gap(width);
    let room = usize::from(width).saturating_sub(others);
    settings_after(view, STEPS, &cut::end(&filter, room, cut_mark(view)))
}

/// Settings after some of the steps that make room.
fn settings_after(view: ScreenView<'_>, step: u8, filter: &str) -> Vec<LinePart> {
    let ScreenView { state, snapshot, .. } = view;
    let group = |group: LiveGroup| {
        if group == state.group { format!("[{}]", group.name()) } else { format!(" {} ", group.name()) }
    };
    let groups = snapshot.groups.iter().copied().filter(|of| step < 1 || *of == state.group);
    let groups: String = groups.map(group).collect();
    let seconds = window(state.window());
    let sort = match state.sort {
        Sort::Growth => format!("+{}", seconds.replace(' ', "")),
        Sort::SinceMark => "since mark".to_owned(),
        Sort::Live => "live".to_owned(),
        Sort::Peak => "peak".to_owned(),
        Sort::Wasted => "wasted".to_owned(),
        Sort::Allocs => "alloc/s".to_owned(),
        Sort::CrossCpu => "xcpu".to_owned(),
        Sort::Name => "name".to_owned(),
    };
    let order = if state.is_reversed { " ^" } else { " v" };
    let seconds = if step < 2 { format!("window {seconds}") } else { String::new() };
    let selected = snapshot.selected.as_ref().filter(|_| !view.is_still());
    let words = if step < 3 { "peaks, changes since" } else { "since" };
    let selected = selected.map_or(String::new(), |(_, since)| format!("{words} {}", moment(*since)));
    let mark = snapshot.mark.filter(|_| step < 4).map_or(String::new(), |at| format!("mark {}", moment(at)));
    vec![
        part(groups, Paint::Plain, 0),
        part(format!("sort {sort}{order}"), Paint::Plain, 0),
        part(seconds, Paint::Plain, 3),
        part(filter, Paint::Strong, 0),
        part(selected, Paint::Plain, 1),
        part(mark, Paint::Plain, 2),
    ]
}

/// Draws the line of keys, the filter that is being typed, or a message.
pub(super) fn draw_keys(view: ScreenView<'_>, pen: &mut Pen<'_>, y: u16) {
    const KEYS: &str = "? help  / filter  s sort  m group  t tree  p freeze  0 mark  [ ] window  Enter detail  q quit";
    const SHORT: &str = "? help  / filter  s sort  m group  t tree  p freeze  0 mark  [ ] window q quit";
    const WIDE_KEYS: &str = "? help   / filter   s sort   m next group   t tree   p freeze   0 mark   [ ] window   Enter detail   w save   q quit";
    let state = view.state;
    if let Some(typed) = &state.typed {
        pen.put(0, y, &format!("filter: {typed}_"), Paint::Strong);
    } else if let Some(message) = &state.message {
        pen.put(0, y, message, Paint::Strong);
    } else {
        let keys = match pen.area().width {
            WIDE.. => WIDE_KEYS,
            96.. => KEYS,
            _ => SHORT,
        };
        pen.put(0, y, keys, Paint::Faint);
    }
}
