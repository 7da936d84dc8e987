//! Table of `cross`: the matrix of CPUs, and call-sites.

use std::io::{self, Write};

use kmemtrace::documents::CpuMatrix;
use kmemtrace::documents::cross::{Cross, CrossRow};
use kmemtrace_abi::text::units;

use super::options::TableOptions;
use super::{cells, heading};
use crate::columns::CROSS;
use crate::columns::column::Column;
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Limit of CPUs in a table's matrix. Larger machines show the CPUs with most pairs.
const MAX_MATRIX_CPUS: usize = 256;
/// Heading of the matrix.
const CORNER: &str = "allocated \\ freed";

/// Writes the tables of `cross`.
pub(crate) fn cross(view: &Cross<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    match &view.matrix {
        Some(pairs) => matrix(pairs, options, out)?,
        None => {
            let unknown =
                "Which CPU freed what another allocated is not known: the input does not tell the order of events.";
            heading::text(unknown, options, out)?;
        }
    }
    writeln!(out)?;
    if view.listing.rows.is_empty() && view.listing.others.is_none() {
        return match view.matrix {
            Some(_) => heading::empty("no object was freed on another CPU", options, out),
            None => Ok(()),
        };
    }
    let row = |row: CrossRow<'_>| -> Vec<Cell> {
        vec![
            row.kind.name().into(),
            cells::count(row.frees).into(),
            cells::percent(row.cross_cpu, row.frees).into(),
            cells::count(row.cross_cpu).into(),
            cells::bytes(row.cross_cpu_bytes, options).into(),
            cells::site(&row.site, row.kind),
            cells::source(&row.site.place),
        ]
    };
    let grid = Grid { columns: &CROSS, ranked: Some("BYTES"), screen: &options.screen };
    let notes = grid.write(|| view.listing.rows.iter().map(row), out)?;
    heading::more_rows(view.listing.others.as_ref().map_or(0, |others| others.others_count as u64), options, out)?;
    heading::footer(notes, options, out)
}

fn matrix(pairs: &CpuMatrix<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let (mut cpus, mut fewer) = busiest(pairs, MAX_MATRIX_CPUS);
    if let Some(limit) = options.screen.width {
        let counts = cpus.iter().flat_map(|&cpu| pairs.row(cpu, &cpus)).map(|n| units::grouped(n).len());
        let names = cpus.iter().map(|cpu| format!("cpu{cpu}").len());
        let wide = counts.chain(names).max().unwrap_or(0) + 2;
        let room = limit.saturating_sub(CORNER.len() + 1) / wide;
        if room < cpus.len() {
            (cpus, fewer) = pairs.busiest(room.max(1));
        }
    }
    let names: Vec<String> = cpus.iter().map(|cpu| format!("cpu{cpu}")).collect();
    let of_cpus = names.iter().map(|name| Column::figure(name, 0, ""));
    let columns: Vec<Column<'_>> = std::iter::once(Column::word(CORNER, 0, "")).chain(of_cpus).collect();
    let row = |(&cpu, name): (&u32, &String)| -> Vec<Cell> {
        let counts = pairs.row(cpu, &cpus).into_iter().map(|n| units::grouped(n).into());
        std::iter::once(name.as_str().into()).chain(counts).collect()
    };
    let grid = Grid { columns: &columns, ranked: None, screen: &options.screen };
    grid.write(|| cpus.iter().zip(&names).map(row), out)?;
    let without = (pairs.cpus.len() - cpus.len() - fewer) as u64;
    for (left_out, which) in [(fewer as u64, "with fewer pairs"), (without, "without pairs")] {
        if left_out > 0 {
            let are = if left_out == 1 { "is" } else { "are" };
            let left_out = cells::counted(left_out, "CPU");
            heading::text(&format!("({left_out} {which} {are} left out; --format json has all)"), options, out)?;
        }
    }
    Ok(())
}

/// All CPUs, or the `max` with most pairs where there are more; also the number of CPUs with pairs that are left out.
fn busiest(pairs: &CpuMatrix<'_>, max: usize) -> (Vec<u32>, usize) {
    if pairs.cpus.len() <= max { (pairs.cpus.to_vec(), 0) } else { pairs.busiest(max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_of_thousands_of_cpus_shows_those_that_have_pairs() {
        let all: Vec<u32> = (0..8192).collect();
        let printed = |width, cpus: &[u32], pairs: &[((u32, u32), u64)]| {
            let mut out = Vec::new();
            matrix(&CpuMatrix::new(cpus, pairs.iter().copied()), &TableOptions::plain(width), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let few = printed(None, &all, &[((5, 8000), 1234), ((5, 5), 1)]);
        let want = " allocated \\ freed  cpu5  cpu8000\n cpu5                  1    1,234\n cpu8000               0        0\n";
        assert_eq!(few, format!("{want}(8,190 CPUs without pairs are left out; --format json has all)\n"));
        let most: Vec<_> = (0..300).map(|cpu| ((cpu, cpu), u64::from(cpu) + 1)).collect();
        let narrow = printed(Some(80), &all, &most);
        assert!(narrow.lines().all(|line| line.len() <= 80) && narrow.contains("cpu299  "), "{narrow}");
        let most = printed(None, &all, &most);
        assert_eq!(most.lines().count(), 1 + MAX_MATRIX_CPUS + 2);
        assert!(most.contains("\n cpu44 ") && !most.contains("\n cpu43 "), "those with fewest pairs are left out");
        assert!(most.contains("\n(44 CPUs with fewer pairs are left out") && most.contains("\n(7,892 CPUs without"));
        assert_eq!(printed(None, &all[..MAX_MATRIX_CPUS], &[]).lines().count(), 1 + MAX_MATRIX_CPUS);
    }
}
