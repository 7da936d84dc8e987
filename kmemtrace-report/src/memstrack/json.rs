//! `task_top_json`: the members, and the blanks, of memstrack's text, with the commas that JSON needs.

use std::collections::HashMap;
use std::io::{self, Write};

use kmemtrace::documents::tree::TreeNode;
use kmemtrace_abi::text::escape::escape_json;

use super::rows::Choice;
use super::text::{frame, task};

/// Blanks before the members of a thread.
const INDENT: usize = 2;

/// `task_top_json`.
pub(super) fn task_top(root: &TreeNode, choice: &Choice, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "[")?;
    let tasks = choice.rows(root.children.iter());
    for (at, node) in tasks.iter().enumerate() {
        let (name, pid) = task(node);
        writeln!(out, " {{\n  \"task_name\": {},\n  \"pid\" :\"{pid}\",", string(name))?;
        members(node, INDENT, choice, out)?;
        writeln!(out, " }}{}", if at + 1 < tasks.len() { "," } else { "" })?;
    }
    writeln!(out, "]")
}

/// Figures and callers of a node. A thread has the callers in any case, a frame where there are some.
fn members(node: &TreeNode, indent: usize, choice: &Choice, out: &mut dyn Write) -> io::Result<()> {
    let [live, peak] = [node.stats.live_pages, node.stats.peak_live_pages].map(number);
    let callers = choice.callers(node);
    write!(out, "{:indent$}\"pages_alloc\": {live},\n{:indent$}\"pages_alloc_peak\": {peak}", "", "")?;
    if callers.is_empty() && indent > INDENT {
        return writeln!(out);
    }
    writeln!(out, ",\n{:indent$}\"tracenodes\": {{", "")?;
    let inner = indent + 1;
    let mut named: HashMap<Vec<u8>, usize> = HashMap::new();
    for (at, caller) in callers.iter().enumerate() {
        let mut name = frame(caller);
        let count = named.entry(name.clone()).or_default();
        *count += 1;
        // Call sites of which the input gives the function alone: a reader keeps one of several members of a name.
        if *count > 1 {
            name.extend(format!(" ({count})").bytes());
        }
        writeln!(out, "{:inner$}{}: {{", "", string(&name))?;
        members(caller, inner + 1, choice, out)?;
        writeln!(out, "{:inner$}}}{}", "", if at + 1 < callers.len() { "," } else { "" })?;
    }
    writeln!(out, "{:indent$}}}", "")
}

fn number(figure: Option<u64>) -> String {
    figure.map_or_else(|| "null".to_owned(), |figure| figure.to_string())
}

/// Name as a string of JSON; bytes that are no UTF-8 become replacement characters.
fn string(name: &[u8]) -> String {
    let text = serde_json::Value::from(String::from_utf8_lossy(name)).to_string();
    escape_json(&text).into_owned()
}
