//! Tables of `static`: folders and files, then sections.

use std::io::{self, Write};

use kmemtrace::documents::static_sizes::{SectionRow, SizeNode, StaticDocument};
use kmemtrace::documents::tree::NodeKind;
use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::columns::{SECTIONS, STATIC};
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Writes the tables of `static`.
pub(crate) fn static_sizes(document: &StaticDocument, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let source = &document.source;
    let objects = cells::counted(source.objects as u64, if source.kind == "tree" { "object" } else { "image" });
    let left_out = match source.left_out {
        0 => String::new(),
        n => format!("   {} left out: unreadable", cells::count(n as u64)),
    };
    heading::title(&format!("{}   {objects}{left_out}", options.title), options, out)?;
    writeln!(out)?;
    let mut rows = Vec::new();
    list(&document.root, 0, options, &mut rows);
    let grid = Grid { columns: &STATIC, ranked: Some("STATIC"), screen: &options.screen };
    grid.write(|| rows.iter().cloned(), out)?;
    if document.sections.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut sections: Vec<&SectionRow> = document.sections.iter().filter(|section| section.bytes > 0).collect();
    sections.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    let shown = sections.len().min(options.top.unwrap_or(usize::MAX));
    let section = |section: &&SectionRow| -> Vec<Cell> {
        vec![cells::bytes(section.bytes, options).into(), escape(&section.name).into_owned().into()]
    };
    let grid = Grid { columns: &SECTIONS, ranked: Some("BYTES"), screen: &options.screen };
    grid.write(|| sections[..shown].iter().map(section), out)?;
    heading::more_rows((sections.len() - shown) as u64, options, out)
}

/// Adds the rows of a node and of those below it.
fn list(node: &SizeNode, depth: usize, options: &TableOptions, rows: &mut Vec<Vec<Cell>>) {
    let sizes = &node.sizes;
    let name = match node.kind {
        NodeKind::Others => figures::others_text(node.folded),
        _ => escape(&node.name).into_owned(),
    };
    let columns = [sizes.text, sizes.rodata, sizes.data, sizes.bss, sizes.init(), sizes.total()];
    let mut row: Vec<Cell> = columns.iter().map(|&bytes| cells::bytes(bytes, options).into()).collect();
    row.push(format!("{:width$}{name}", "", width = 2 * depth).into());
    rows.push(row);
    node.children.iter().for_each(|child| list(child, depth + 1, options, rows));
}
