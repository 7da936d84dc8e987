//! Pane below the table: more about the chosen row.

use std::ops::Range;

use kmemtrace::live::{Detail, LiveRow};
use kmemtrace_abi::text::units::grouped;

use super::view::{Paint, Pen, View, WIDE};
use super::{figures, rows, who};
use crate::render::cut;

/// Lines of the pane, its upper edge included.
const LINES: u16 = 5;

/// Height of the pane at a height of the screen.
pub(super) fn height(_: u16) -> u16 {
    LINES
}

/// Draws the pane.
pub(super) fn draw(view: View<'_>, pen: &mut Pen<'_>, lines: Range<u16>) {
    let width = pen.area().width;
    pen.put(0, lines.start, &"-".repeat(usize::from(width)), Paint::Faint);
    let all = view.state.rows(view.snapshot);
    let Some(row) = all.get(view.state.chosen_index(&all)) else { return };
    let detail = view.snapshot.detail.clone().unwrap_or_default();
    let mark = rows::cut_mark(view);
    let end = if width < WIDE { width } else { width - 54 };
    for (text, y) in words(view, row, &detail, usize::from(end), mark).into_iter().zip(lines.start + 1..lines.end) {
        pen.put(0, y, &cut::middle(&text, usize::from(end), mark), Paint::Plain);
    }
    if width >= WIDE {
        let text = ages(&detail);
        for (text, y) in text.into_iter().zip(lines.start + 1..lines.end) {
            pen.put(end, y, &format!("| {text}"), Paint::Plain);
        }
    }
}

/// Lines about a row.
fn words(view: View<'_>, row: &LiveRow, detail: &Detail, width: usize, mark: char) -> Vec<String> {
    // An inner node of a tree has no more than its sums.
    let requested = if detail.requested > 0 { detail.requested } else { row.live.saturating_sub(row.wasted) };
    let LiveRow { objects, live, wasted, allocs_now, frees_now, cross_cpu, frees, .. } = row;
    let sizes = match objects {
        0 => String::new(),
        n => format!("  asks {} B, gets {} B", requested / n, live / n),
    };
    let facts = format!("  {} objects{sizes}  wasted {}", grouped(*objects), figures::long_bytes(*wasted));
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
