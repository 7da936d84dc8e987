//! Parser of memstrack's layouts, as a script would parse them: for its own output and for ours alike.

/// Node of a report: a module, a thread, or a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Text before the figures.
    pub(crate) name: String,
    /// Live pages; `None` for a hyphen.
    pub(crate) pages: Option<u64>,
    /// Greatest number of live pages; `None` for a hyphen.
    pub(crate) peak: Option<u64>,
    /// Callers, as they follow.
    pub(crate) children: Vec<Node>,
}

/// Line of `module_summary` or `task_summary`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Module or thread.
    pub(crate) name: String,
    /// Thread id; `None` for a module.
    pub(crate) pid: Option<i64>,
    /// Sizes of live pages and of the peak as they are printed, for a module.
    pub(crate) sizes: Option<[String; 2]>,
    /// Live pages; `None` for a hyphen.
    pub(crate) pages: Option<u64>,
    /// Greatest number of live pages; `None` for a hyphen.
    pub(crate) peak: Option<u64>,
}

/// Reports by name, each with its lines.
pub(crate) fn sections(text: &str) -> Vec<(String, Vec<&str>)> {
    let mut sections: Vec<(String, Vec<&str>)> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let heading = line.strip_prefix("======== Report format ");
        if let Some(name) = heading.and_then(|rest| rest.strip_suffix(" END ========")) {
            assert!(open && sections.last().is_some_and(|(last, _)| last == name), "{line}");
            open = false;
        } else if let Some(name) = heading.and_then(|rest| rest.strip_suffix(": ========")) {
            assert!(!open, "{line}");
            sections.push((name.to_owned(), Vec::new()));
            open = true;
        } else if let Some((_, lines)) = sections.last_mut().filter(|_| open) {
            lines.push(line);
        } else {
            assert!(line.is_empty(), "a line outside of reports: {line:?}");
        }
    }
    assert!(!open, "the last report has no end");
    sections
}

/// Lines of one report.
pub(crate) fn section<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let found = sections(text).into_iter().find(|(section, _)| section == name);
    found.unwrap_or_else(|| panic!("no report {name}: {text}")).1
}

fn number(text: &str) -> Option<u64> {
    if text == "-" { None } else { Some(text.parse().unwrap_or_else(|_| panic!("no number: {text:?}"))) }
}

/// Text between two words, the first of which stands last.
fn cut<'a>(line: &'a str, before: &str, after: &str) -> (&'a str, &'a str) {
    let (head, tail) = line.rsplit_once(before).unwrap_or_else(|| panic!("no {before:?}: {line:?}"));
    (head, tail.strip_suffix(after).unwrap_or_else(|| panic!("no {after:?} at the end: {line:?}")))
}

/// Rows of `module_summary`.
pub(crate) fn modules(lines: &[&str]) -> Vec<Row> {
    let size = |text: &str| {
        let (size, pages) = text.split_once("MB (").unwrap_or_else(|| panic!("no size: {text:?}"));
        (size.to_owned(), number(pages))
    };
    let row = |line: &&str| {
        let (head, peak) = cut(line, ", peak allocation ", " pages)");
        let (head, live) = cut(head, " using ", " pages)");
        let name = head.strip_prefix("Module ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        let ((live, pages), (greatest, peak)) = (size(live), size(peak));
        Row { name, pid: None, sizes: Some([live, greatest]), pages, peak }
    };
    lines.iter().map(row).collect()
}

/// Rows of `task_summary`.
pub(crate) fn tasks(lines: &[&str]) -> Vec<Row> {
    let row = |line: &&str| {
        let (head, peak) = cut(line, " pages, peak usage ", " pages");
        let (head, pages) = cut(head, " using ", "");
        let (name, pid) = cut(head, " (", ")");
        let name = name.strip_prefix("Task ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        let pid = pid.parse().unwrap_or_else(|_| panic!("{line:?}"));
        Row { name, pid: Some(pid), sizes: None, pages: number(pages), peak: number(peak) }
    };
    lines.iter().map(row).collect()
}

/// Trees of `task_top`.
pub(crate) fn task_top(lines: &[&str]) -> Vec<Node> {
    let mut lines = lines.iter().peekable();
    let mut nodes = Vec::new();
    while lines.peek().is_some() {
        let before = lines.len();
        nodes.extend(level(&mut lines, 0));
        assert!(lines.len() < before, "a line with blanks of no level: {:?}", lines.peek());
    }
    nodes
}

/// Trees of `module_top`: the name of a module stands above its figures.
pub(crate) fn module_top(lines: &[&str]) -> Vec<Node> {
    let mut lines = lines.iter().peekable();
    let mut modules = Vec::new();
    while let Some(line) = lines.next() {
        let name = line.strip_prefix("Top stack usage of module ").and_then(|rest| rest.strip_suffix(':'));
        let name = name.unwrap_or_else(|| panic!("{line:?}"));
        let nodes = level(&mut lines, 2);
        let [node] = &nodes[..] else { panic!("{} nodes of {name}", nodes.len()) };
        assert_eq!(node.name, "(null)", "{name}");
        modules.push(Node { name: name.to_owned(), ..node.clone() });
    }
    modules
}

/// Nodes with so many blanks before them, each with those below it.
fn level<'a>(lines: &mut std::iter::Peekable<impl Iterator<Item = &'a &'a str>>, blanks: usize) -> Vec<Node> {
    let mut nodes = Vec::new();
    while let Some(line) = lines.next_if(|line| line.len() - line.trim_start_matches(' ').len() == blanks) {
        let (head, peak) = cut(line, " (peak: ", ")");
        let (name, pages) = cut(head, " Pages: ", "");
        let name = name[blanks..].to_owned();
        nodes.push(Node { name, pages: number(pages), peak: number(peak), children: level(lines, blanks + 2) });
    }
    nodes
}

/// Caches of `proc_slab_static` and their sizes.
pub(crate) fn slabs(lines: &[&str]) -> Vec<(String, String)> {
    let Some((heading, rows)) = lines.split_first() else { panic!("an empty report of slabs") };
    assert_eq!(*heading, "Top Slab Usage:");
    let row = |line: &&str| {
        let (name, size) = cut(line, ": ", " MB");
        (name.trim_start().to_owned(), size.to_owned())
    };
    rows.iter().map(row).collect()
}
