//! Text of `account`: the forms that scripts for trace_analyze and slab_account read, byte for byte.

use std::io::{self, Write};

use kmemtrace::documents::AccountStyle;
use kmemtrace::documents::account::{AccountBody, AccountFigures, AccountRow};
use kmemtrace_abi::text::escape::escape;

/// Writes the account in its style, without any heading of ours.
pub(crate) fn account(body: &AccountBody<'_>, out: &mut dyn Write) -> io::Result<()> {
    match body.style {
        AccountStyle::TraceAnalyze => trace_analyze(body, out),
        AccountStyle::SlabAccount => slab_account(body, out),
        AccountStyle::Callers => callers(body, out),
    }
}

fn trace_analyze(body: &AccountBody<'_>, out: &mut dyn Write) -> io::Result<()> {
    let AccountBody { total, .. } = body;
    for (label, sum) in [
        ("current bytes allocated:", total.live_allocated),
        ("current bytes requested:", total.live_requested),
        ("current wasted bytes:", total.live_wasted),
        ("number of allocs:", total.allocs),
        ("number of frees:", total.frees),
        ("number of callers:", Some(body.callers as u64)),
    ] {
        writeln!(out, "{label:<24} {:>10}", figure(sum))?;
    }
    writeln!(out, "\n   total    waste      net alloc/free  caller")?;
    writeln!(out, "---------------------------------------------")?;
    body.rows.iter().try_for_each(|row| {
        let AccountFigures { allocs, frees, allocated, live_wasted, live_allocated, .. } = row.figures;
        line(out, [allocated, live_wasted, live_allocated], [allocs, frees], &row)
    })
}

fn slab_account(body: &AccountBody<'_>, out: &mut dyn Write) -> io::Result<()> {
    let AccountBody { total, .. } = body;
    for (label, sum) in [
        ("total bytes allocated:", total.allocated),
        ("total bytes requested:", total.requested),
        ("slack bytes allocated:", total.wasted),
        ("number of allocs:", total.allocs),
        ("number of frees:", total.frees_made),
        ("number of callers:", Some(body.callers as u64)),
    ] {
        writeln!(out, "{label:<22} {:>8}", figure(sum))?;
    }
    writeln!(out, "\n   total    slack      req alloc/free  caller")?;
    body.rows.iter().try_for_each(|row| {
        let AccountFigures { allocs, frees_made, allocated, wasted, requested, .. } = row.figures;
        line(out, [allocated, wasted, requested], [allocs, frees_made], &row)
    })
}

fn callers(body: &AccountBody<'_>, out: &mut dyn Write) -> io::Result<()> {
    body.rows.iter().try_for_each(|row| {
        let object = row.object.as_deref().map(escape).unwrap_or_default();
        let AccountFigures { live_allocated, live_wasted, .. } = row.figures;
        // Readers split this line at blanks, so the module is left out.
        let [allocated, wasted] = [live_allocated, live_wasted].map(figure);
        writeln!(out, "{:<60} {allocated:<8} {wasted:<8} {object:<8}", symbol(&row))
    })
}

fn line(out: &mut dyn Write, sums: [Option<u64>; 3], counts: [Option<u64>; 2], row: &AccountRow<'_>) -> io::Result<()> {
    let ([total, waste, last], [allocs, frees]) = (sums.map(figure), counts.map(figure));
    writeln!(out, "{total:>8} {waste:>8} {last:>8} {allocs:>5}/{frees:<5} {}", name(row))
}

/// A figure; `-` is one that the input does not tell.
fn figure(figure: Option<u64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string())
}

/// Symbol and module, else the address.
fn name(row: &AccountRow<'_>) -> String {
    match &row.site.module {
        Some(_) if row.site.symbol.is_none() => escape(&row.site.text()).into_owned(),
        Some(module) => format!("{} [{}]", symbol(row), escape(module)),
        None => symbol(row),
    }
}

/// Symbol, else the address.
fn symbol(row: &AccountRow<'_>) -> String {
    let symbol = row.site.symbol.as_deref().map(|symbol| escape(symbol).into_owned());
    symbol.unwrap_or_else(|| row.site.call_site.to_string())
}
