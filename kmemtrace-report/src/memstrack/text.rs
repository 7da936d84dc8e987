//! Layouts in lines. Scripts parse them: blanks and words are those of memstrack.

use std::io::{self, Write};

use kmemtrace::documents::tree::{NodeKind, TreeNode};
use kmemtrace_abi::text::escape::escape;

use super::rows::Choice;

/// Blanks before a node for each level.
const INDENT: usize = 2;
/// Name of a node that has none.
const NO_NAME: &str = "(null)";

/// Modules of a tree; the kernel itself is none.
pub(super) fn modules(root: &TreeNode) -> impl Iterator<Item = &TreeNode> {
    let is_module = |node: &&TreeNode| node.kind == NodeKind::Module && node.module.is_some();
    root.children.iter().filter(is_module)
}

/// Name of a thread without its id, and the id; -1 where it is not known.
pub(super) fn task(node: &TreeNode) -> (&[u8], i32) {
    let Some(pid) = node.pid else { return (&node.name, -1) };
    let id = format!(" ({pid})");
    (node.name.strip_suffix(id.as_bytes()).unwrap_or(&node.name), pid)
}

/// `function (0xADDRESS)`, or `function MODULE (0xADDRESS)`: any bytes.
pub(super) fn frame(node: &TreeNode) -> Vec<u8> {
    let Some(address) = node.address else { return NO_NAME.into() };
    let name = &node.name;
    let offset = name.windows(3).rposition(|three| three == b"+0x").filter(|at| *at > 0);
    let function = &name[..offset.unwrap_or(name.len())];
    let module = node.module.as_deref().map_or(Vec::new(), |module| [b" ", module].concat());
    [function, &module, &address.told().map_or(Vec::new(), |address| format!(" ({address})").into_bytes())].concat()
}

fn count(figure: Option<u64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string())
}

/// `1.5MB (377 pages)`.
fn size(pages: Option<u64>, page_bytes: Option<u64>) -> String {
    let mib = pages.zip(page_bytes).map(|(pages, bytes)| pages as f64 * bytes as f64 / f64::from(1 << 20));
    let mib = mib.map_or_else(|| "-".to_owned(), |mib| format!("{mib:.1}"));
    format!("{mib}MB ({} pages)", count(pages))
}

/// `module_summary`.
pub(super) fn module_summary(
    root: &TreeNode,
    choice: &Choice,
    page_bytes: Option<u64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for node in choice.rows(modules(root)) {
        let (name, stats) = (escape(node.module.as_deref().unwrap_or_default()), &node.stats);
        let [live, peak] = [stats.live_pages, stats.peak_live_pages].map(|pages| size(pages, page_bytes));
        writeln!(out, "Module {name} using {live}, peak allocation {peak}")?;
    }
    Ok(())
}

/// `module_top`.
pub(super) fn module_top(root: &TreeNode, choice: &Choice, out: &mut dyn Write) -> io::Result<()> {
    for node in choice.rows(modules(root)) {
        writeln!(out, "Top stack usage of module {}:", escape(node.module.as_deref().unwrap_or_default()))?;
        let indent = INDENT;
        writeln!(out, "{:indent$}{NO_NAME} {}", "", pages(node))?;
        callers(node, indent + INDENT, choice, out)?;
    }
    Ok(())
}

/// `task_summary`.
pub(super) fn task_summary(root: &TreeNode, choice: &Choice, out: &mut dyn Write) -> io::Result<()> {
    for node in choice.rows(root.children.iter()) {
        let (name, pid) = task(node);
        let [live, peak] = [node.stats.live_pages, node.stats.peak_live_pages].map(count);
        writeln!(out, "Task {} ({pid}) using {live} pages, peak usage {peak} pages", escape(name))?;
    }
    Ok(())
}

/// `task_top`.
pub(super) fn task_top(root: &TreeNode, choice: &Choice, out: &mut dyn Write) -> io::Result<()> {
    for node in choice.rows(root.children.iter()) {
        writeln!(out, "{} {}", escape(task(node).0), pages(node))?;
        callers(node, INDENT, choice, out)?;
    }
    Ok(())
}

/// `Pages: 5 (peak: 7)`.
fn pages(node: &TreeNode) -> String {
    let [live, peak] = [node.stats.live_pages, node.stats.peak_live_pages].map(count);
    format!("Pages: {live} (peak: {peak})")
}

fn callers(node: &TreeNode, indent: usize, choice: &Choice, out: &mut dyn Write) -> io::Result<()> {
    for caller in choice.callers(node) {
        writeln!(out, "{:indent$}{} {}", "", escape(&frame(caller)), pages(caller))?;
        callers(caller, indent + INDENT, choice, out)?;
    }
    Ok(())
}
