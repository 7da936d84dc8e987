//! Pane below the table: more about the chosen row.

use std::ops::Range;
use std::sync::Arc;

use kmemtrace::live::{Detail, LiveName, LiveRow, Shares, SizeShare};
use kmemtrace_abi::text::units::{counted, grouped};

use super::view::{Paint, Pen, ScreenView, WIDE};
use super::{figures, rows, who};
use crate::render::cut;

/// Height of the pane at a height of the screen, its upper edge included.
pub(super) fn height(screen: u16) -> u16 {
    if screen < 40 { 5 } else { 6 }
}

/// Width from which on sizes stand beside the ages.
const WIDE_ENOUGH_FOR_SIZES: u16 = 150;
/// Widths of the columns of ages and of sizes.
const AGES: u16 = 43;
const SIZES: u16 = 33;

/// Draws the pane.
pub(super) fn draw(view: ScreenView<'_>, pen: &mut Pen<'_>, lines: Range<u16>) {
    let width = pen.area().width;
    pen.put(0, lines.start, &"-".repeat(usize::from(width)), Paint::Faint);
    let all = view.state.rows(view.snapshot);
    let Some(row) = all.get(view.state.chosen_index(&all)) else { return };
    // An inner node of a tree has no more than its sums.
    let is_inner = view.snapshot.detail.is_none();
    let none = Detail { shares: Some(Shares::default()), ..Detail::default() };
    let detail = view.snapshot.detail.clone().unwrap_or(none);
    let mark = rows::cut_mark(view);
    let (ages_width, sizes_width) = match width {
        _ if is_inner => (0, 0),
        ..WIDE => (0, 0),
        WIDE..WIDE_ENOUGH_FOR_SIZES => (AGES, 0),
        WIDE_ENOUGH_FOR_SIZES.. => (AGES, SIZES),
    };
    let end = width - ages_width - sizes_width;
    let room = lines.len() - 1;
    let mut text = words(view, row, &detail, usize::from(end), mark);
    if text.len() < room {
        text.insert(text.len() - usize::from(detail.stack.is_some()), who_and_when(view, row, &detail));
    }
    for (text, y) in text.into_iter().zip(lines.start + 1..lines.end) {
        pen.put(0, y, &cut::middle(&text, usize::from(end), mark), Paint::Plain);
    }
    if ages_width == 0 {
        return;
    }
    let sizes = if sizes_width > 0 { sizes(&detail) } else { Vec::new() };
    let sizes = sizes.into_iter().chain(std::iter::repeat(String::new()));
    for ((age, size), y) in ages(&detail).into_iter().zip(sizes).zip(lines.start + 1..lines.end) {
        pen.put(end, y, &format!("| {size:<width$}{age}", width = usize::from(sizes_width)), Paint::Plain);
    }
}

/// Threads whose allocations are live, and the times of the row's first and last allocation.
fn who_and_when(view: ScreenView<'_>, row: &LiveRow, detail: &Detail) -> String {
    let share =
        |(name, live): &(Arc<LiveName>, u64)| format!("{} {}", who::name(name), figures::percent(*live, row.live));
    let threads = detail.shares.iter().flat_map(|shares| &shares.threads);
    let threads: Vec<String> = threads.filter(|(_, live)| *live > 0).map(share).collect();
    let mut parts = Vec::new();
    if let Some((first, last)) = detail.times.filter(|_| !view.is_still()) {
        parts.push(format!("first {}, last {}", figures::moment(first), figures::moment(last)));
    }
    if !threads.is_empty() {
        parts.push(format!("by {}", threads.join(", ")));
    }
    format!(" {}", parts.join("  "))
}

/// Sizes of live objects, or orders of blocks, with their numbers and bytes.
fn sizes(detail: &Detail) -> Vec<String> {
    let of = |size: &SizeShare| {
        let name = size.order.map_or_else(|| format!("{} B", size.allocated), |order| format!("order {order}"));
        format!("{name:<11}{:>9}  {:>9}", grouped(size.objects), figures::long_bytes(size.live))
    };
    let title = format!("{:<11}{:>9}  {:>9}", "size, order", "OBJS", "live now");
    let lines = match &detail.shares {
        Some(shares) => shares.sizes.iter().map(of).collect(),
        None => vec!["not counted yet".to_owned()],
    };
    std::iter::once(title).chain(lines).collect()
}

/// Lines about a row.
fn words(view: ScreenView<'_>, row: &LiveRow, detail: &Detail, width: usize, mark: char) -> Vec<String> {
    // An inner node of a tree has no more than its sums.
    let requested = if detail.requested > 0 { detail.requested } else { row.live.saturating_sub(row.wasted) };
    let LiveRow { objects, live, wasted, allocs_now, frees_now, cross_cpu, frees, .. } = row;
    let sizes = match objects {
        0 => String::new(),
        n => format!("  asks {} B, gets {} B", requested / n, live / n),
    };
    let facts = match (view.is_still(), *objects, *live) {
        // A text does not tell both.
        (true, 0, _) => String::new(),
        (true, _, 0) => format!("  {}", counted(*objects, "object")),
        _ => format!("  {}{sizes}  wasted {}", counted(*objects, "object"), figures::long_bytes(*wasted)),
    };
    let name = cut::site(&who::name(&row.name), width.saturating_sub(facts.chars().count()), mark);
    let window = figures::window(view.state.window());
    let ages = &detail.ages;
    let age = if *objects > 0 && row.median_age.is_some() {
        format!("  older than {window}: {}  oldest {}", grouped(ages.beyond_window), long_age(ages.oldest))
    } else {
        String::new()
    };
    let freers: Vec<String> = detail
        .freed_by
        .iter()
        .map(|(name, count)| format!("{} {}", who::name(name), figures::percent(*count, *frees)))
        .collect();
    let mut freed = match freers.is_empty() {
        true => format!(" frees  {}", grouped(*frees)),
        false => format!(" freed by  {}", freers.join(", ")),
    };
    if *frees > 0 {
        freed += &format!("; other CPU {}", figures::percent(*cross_cpu, *frees));
    }
    let mut lines = vec![format!("{name}{facts}")];
    if !view.is_still() {
        lines.push(format!(" allocs {}/s  frees {}/s{age}", grouped(*allocs_now), grouped(*frees_now)));
        lines.push(freed);
    }
    if let Some(stack) = &detail.stack {
        lines.push(format!(" stack  {}", who::name(stack)));
    }
    lines
}

/// Ages of live objects, a class a line.
fn ages(detail: &Detail) -> Vec<String> {
    let [first, second, third, older] = detail.ages.counts.map(grouped);
    vec![
        format!("age of live objects    <1 s {first:>12}"),
        format!("                      <10 s {second:>12}"),
        format!("                      <60 s {third:>12}"),
        format!("                      older {older:>12}"),
    ]
}

/// Age in words: `12 s`, `3 min 2 s`.
fn long_age(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}
