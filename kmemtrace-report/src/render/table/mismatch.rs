//! Table of `mismatch`: errors, then suspects, then one line for each class of findings that are normal.

use std::fmt::Write as _;
use std::io::{self, Write};

use kmemtrace::Finding;
use kmemtrace::documents::Head;
use kmemtrace::documents::mismatch::{MismatchRow, OtherFindings};
use kmemtrace::documents::ranked::Listing;

use super::options::TableOptions;
use super::{cells, heading};
use crate::columns::MISMATCH;
use crate::columns::column::Column;
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;
use crate::terminal::screen::Paint;

/// Reason of a mismatch that is unseen.
const UNSEEN: &str = "explained: objects of the call-site are also freed on paths without events";

/// Classes that are normal, with the reason.
const NORMAL: [(Finding, &str); 6] = [
    (Finding::KindMismatch, UNSEEN),
    (Finding::CacheMismatch, UNSEEN),
    (Finding::KindMismatchLegal, "cache objects freed with kfree: legal since Linux 6.4"),
    (Finding::FreeAfterFree, "freed twice in a row: the allocation between had no event (bulk allocation)"),
    (Finding::InferredFree, "allocated twice in a row: the free between had no event (bulk, RCU)"),
    (Finding::ShortAlloc, "fewer bytes handed out than asked for: unusual, look at the call-sites"),
];

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Error,
    Suspect,
    Normal,
}

impl Severity {
    fn of(row: &MismatchRow<'_>) -> Severity {
        match row.class {
            _ if row.errors() > 0 => Severity::Error,
            Finding::KindMismatch | Finding::CacheMismatch if row.suspect > 0 => Severity::Suspect,
            _ => Severity::Normal,
        }
    }

    fn name(self) -> Cell {
        match self {
            Severity::Error => Cell::painted("error", Paint::Bad),
            Severity::Suspect => Cell::painted("suspect", Paint::Warning),
            Severity::Normal => "normal".into(),
        }
    }
}

/// Writes the tables of `mismatch`.
pub(crate) fn mismatch<'a>(
    head: &Head<'_>,
    listing: &Listing<'a, MismatchRow<'a>, OtherFindings>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if head.completeness.inferred_frees.is_none() {
        const UNKNOWN: &str = "Which frees do not match their allocations is not known: the input has no frees.";
        return heading::text(UNKNOWN, options, out);
    }
    if listing.rows.is_empty() {
        return heading::empty("no finding", options, out);
    }
    let parts = [
        (Severity::Error, "Errors: nothing known explains them", "ERRORS"),
        (Severity::Suspect, "Suspect: events were lost in between, or clocks differ", "SUSPECT"),
        (Severity::Normal, "Normal", "COUNT"),
    ];
    for (severity, title, ranked) in parts {
        let has_rows = listing.rows.iter().any(|row| Severity::of(&row) == severity);
        match severity {
            Severity::Normal if !options.shows_normal => normal_classes(listing, options, out)?,
            _ if has_rows => part(head, listing, (severity, title, ranked), options, out)?,
            Severity::Error => writeln!(out, "{}\n", options.screen.paint(Paint::Good, "No errors"))?,
            _ => {}
        }
    }
    Ok(())
}

/// Writes the rows of one severity under their title.
fn part<'a>(
    head: &Head<'_>,
    listing: &Listing<'a, MismatchRow<'a>, OtherFindings>,
    (severity, title, ranked): (Severity, &str, &str),
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    heading::title(title, options, out)?;
    let top = options.top.unwrap_or(usize::MAX);
    let rows = || listing.rows.iter().filter(|row| Severity::of(row) == severity);
    let cells = |row: MismatchRow<'_>| -> Vec<Cell> {
        let mut first = cells::moment(&head.trace, row.first.at);
        if options.show_addresses {
            let _ = write!(first, " {}", row.first.address);
        }
        let errors = if severity == Severity::Normal { "-".to_owned() } else { cells::count(row.errors()) };
        vec![
            cells::count(u64::from(row.first.cpu)).into(),
            first.into(),
            row.kind.name().into(),
            cells::count(row.count).into(),
            cells::count(row.suspect).into(),
            cells::count(row.unseen).into(),
            errors.into(),
            row.class.name().into(),
            severity.name(),
            cells::function(&row.alloc_symbol, row.alloc_site, row.kind),
            cells::function(&row.free_symbol, row.free_site, row.kind),
        ]
    };
    let columns: &[Column<'_>] = &MISMATCH;
    let grid = Grid { columns, ranked: Some(ranked), screen: &options.screen };
    let notes = grid.write(|| rows().take(top).map(cells), out)?;
    heading::more_rows(rows().skip(top).count() as u64, options, out)?;
    heading::footer(notes, options, out)?;
    writeln!(out)
}

/// Writes a line for each class of findings that are normal.
fn normal_classes<'a>(
    listing: &Listing<'a, MismatchRow<'a>, OtherFindings>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let is_normal = |row: &MismatchRow<'_>| Severity::of(row) == Severity::Normal;
    let count = |class, figure: fn(&MismatchRow<'_>) -> u64| {
        let rows = listing.rows.iter().filter(|row| row.class == class && is_normal(row));
        rows.map(|row| figure(&row)).fold(0, u64::saturating_add)
    };
    let reason = |class, reason: &str| match count(class, |row| row.suspect) {
        0 => reason.to_owned(),
        suspect => format!("{reason}; or an event was lost: {} of them", cells::count(suspect)),
    };
    let counts: Vec<(u64, Finding, String)> = NORMAL
        .into_iter()
        .map(|(class, known)| (count(class, |row| row.count), class, reason(class, known)))
        .filter(|(count, ..)| *count > 0)
        .collect();
    if counts.is_empty() {
        return Ok(());
    }
    heading::title("Normal (--all lists the call-sites)", options, out)?;
    let [figures, classes] = [
        counts.iter().map(|(n, ..)| cells::count(*n).len()).max().unwrap_or(0),
        counts.iter().map(|(_, class, _)| class.name().len()).max().unwrap_or(0),
    ];
    for (count, class, reason) in counts {
        let line = format!(" {:>figures$}  {:<classes$}  {reason}", cells::count(count), class.name());
        heading::indented(&line, figures + classes + 5, options, out)?;
    }
    Ok(())
}
