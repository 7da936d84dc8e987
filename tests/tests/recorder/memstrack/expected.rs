//! Reports as they follow from the JSON of `tree`, which other tests hold against a second implementation.

use std::path::Path;

use kmemtrace_abi::text::escape::escape;
use kmemtrace_tests::programs::{json, run_to};
use serde_json::Value;

use super::layouts::{Node, Row};

/// Parameters of a report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Order {
    by_peak: bool,
    throttle: Option<u64>,
    top: Option<usize>,
}

impl Order {
    /// Reads the parameters of these tests.
    pub(crate) fn parse(parameters: &str) -> Order {
        let number = |name: &str| {
            let value = parameters.split(':').find_map(|parameter| parameter.strip_prefix(name));
            value.map(|value| value.parse::<usize>().unwrap())
        };
        let throttle = number("throttle=").filter(|percent| *percent > 0).map(|percent| percent as u64);
        Order { by_peak: parameters.contains("sort_by_peak"), throttle, top: number("top=") }
    }

    fn figure(&self, node: &Node) -> u64 {
        if self.by_peak { node.peak.or(node.pages) } else { node.pages }.unwrap_or(0)
    }

    /// Rows that make up the share, at most `top`; without a share all, or those with pages where `drops_empty`.
    fn kept(&self, nodes: &[Node], drops_empty: bool, top: Option<usize>) -> Vec<Node> {
        let all: u64 = nodes.iter().map(|node| self.figure(node)).sum();
        let percent = self.throttle.or(drops_empty.then_some(100));
        let mut sum = 0;
        let is_kept = |node: &&Node| {
            let is_kept = percent.is_none_or(|percent| sum * 100 < all * percent);
            sum += self.figure(node);
            is_kept
        };
        nodes.iter().take_while(is_kept).take(top.filter(|top| *top > 0).unwrap_or(usize::MAX)).cloned().collect()
    }

    fn callers(&self, node: &Node, drops_empty: bool, top: Option<usize>) -> Node {
        let kept = self.kept(&node.children, drops_empty, top);
        Node { children: kept.iter().map(|child| self.callers(child, drops_empty, top)).collect(), ..node.clone() }
    }
}

/// Documents of a trace: `tree` by module and by task, each by live bytes and by peak.
#[derive(Debug)]
pub(crate) struct Trees {
    modules: [Value; 2],
    tasks: [Value; 2],
    page_bytes: f64,
}

impl Trees {
    /// Documents of the trace in this folder.
    pub(crate) fn of(trace: &Path) -> Trees {
        let tree = |by: &str, sort: &str| {
            let options = ["tree", "--kind", "pages", "--no-index", "--by", by, "--sort", sort, "--format", "json"];
            json(&run_to(0, "kmemtrace-report", &options, &[trace]))
        };
        let both = |by: &str| {
            let live = tree(by, "live");
            // Rows are sorted by live pages where peaks are not known.
            let has_peaks = live["root"]["peak_live_pages"].is_u64();
            [live.clone(), if has_peaks { tree(by, "peak") } else { live }]
        };
        let modules = both("module,stack");
        let page_bytes = modules[0]["trace"]["page_bytes"].as_f64().unwrap_or(f64::NAN);
        Trees { modules, tasks: both("task,stack"), page_bytes }
    }

    fn modules(&self, order: &Order) -> Vec<Node> {
        let rows = children(&self.modules[usize::from(order.by_peak)]["root"]);
        let rows = rows.iter().filter(|row| row["module"].is_string());
        rows.map(|row| node(row, shown(&row["module"]))).collect()
    }

    fn tasks(&self, order: &Order) -> Vec<(Node, i64)> {
        let task = |row: &Value| {
            let name = row["name"].as_str().unwrap();
            let found =
                name.rsplit_once(" (").and_then(|(name, pid)| Some((name, pid.strip_suffix(')')?.parse().ok()?)));
            let (name, pid) = found.unwrap_or((name, -1));
            (node(row, escape(name.as_bytes()).into_owned()), pid)
        };
        children(&self.tasks[usize::from(order.by_peak)]["root"]).iter().map(task).collect()
    }

    pub(crate) fn module_summary(&self, order: &Order) -> Vec<Row> {
        let size = |pages: Option<u64>| {
            let size = pages.map(|pages| pages as f64 * self.page_bytes / 1024.0 / 1024.0);
            size.map_or("-".to_owned(), |size| format!("{size:.1}"))
        };
        let row = |node: &Node| {
            let sizes = Some([size(node.pages), size(node.peak)]);
            Row { name: node.name.clone(), pid: None, sizes, pages: node.pages, peak: node.peak }
        };
        order.kept(&self.modules(order), false, order.top).iter().map(row).collect()
    }

    pub(crate) fn module_top(&self, order: &Order) -> Vec<Node> {
        let modules = order.kept(&self.modules(order), false, None);
        modules.iter().map(|node| order.callers(node, true, order.top.or(Some(2)))).collect()
    }

    fn kept_tasks(&self, order: &Order, top: Option<usize>) -> Vec<(Node, i64)> {
        let tasks = self.tasks(order);
        let nodes: Vec<Node> = tasks.iter().map(|(node, _)| node.clone()).collect();
        let count = order.kept(&nodes, true, top).len();
        tasks.into_iter().take(count).collect()
    }

    pub(crate) fn task_summary(&self, order: &Order) -> Vec<Row> {
        let row = |(node, pid): (Node, i64)| Row {
            name: node.name,
            pid: Some(pid),
            sizes: None,
            pages: node.pages,
            peak: node.peak,
        };
        self.kept_tasks(order, order.top).into_iter().map(row).collect()
    }

    pub(crate) fn task_top(&self, order: &Order) -> Vec<Node> {
        let tasks = self.kept_tasks(order, None);
        tasks.iter().map(|(node, _)| order.callers(node, true, order.top)).collect()
    }

    pub(crate) fn task_top_json(&self, order: &Order) -> Vec<Node> {
        let tasks = self.kept_tasks(order, None);
        let with_pid = |(node, pid): &(Node, i64)| {
            let node = order.callers(node, false, order.top);
            Node { name: format!("{} ({pid})", node.name), ..node }
        };
        tasks.iter().map(with_pid).map(sorted).collect()
    }
}

/// Node with the callers of each in the order of their names: members of an object have no other.
fn sorted(mut node: Node) -> Node {
    node.children = node.children.into_iter().map(sorted).collect();
    node.children.sort_by(|a, b| a.name.cmp(&b.name));
    node
}

/// Number of nodes.
pub(crate) fn size(node: &Node) -> usize {
    1 + node.children.iter().map(size).sum::<usize>()
}

fn children(node: &Value) -> &[Value] {
    node["children"].as_array().map_or(&[], Vec::as_slice)
}

fn shown(name: &Value) -> String {
    escape(name.as_str().unwrap_or_default().as_bytes()).into_owned()
}

/// Node of a document with the frames below it.
fn node(row: &Value, name: String) -> Node {
    let frame = |child: &Value| {
        let Some(address) = child["address"].as_str() else { return node(child, "(null)".to_owned()) };
        let name = child["name"].as_str().unwrap();
        let function = name.rsplit_once("+0x").map_or(name, |(function, _)| function);
        let module = child["module"].as_str().map_or(String::new(), |module| format!(" {module}"));
        node(child, escape(format!("{function}{module} ({address})").as_bytes()).into_owned())
    };
    let (pages, peak) = (row["live_pages"].as_u64(), row["peak_live_pages"].as_u64());
    Node { name, pages, peak, children: children(row).iter().map(frame).collect() }
}

/// Threads of `task_top_json`, the callers of each in the order of their names.
pub(crate) fn of_memstrack_json(document: &Value) -> Vec<Node> {
    let figures = |value: &Value| (value["pages_alloc"].as_u64(), value["pages_alloc_peak"].as_u64());
    let task = |task: &Value| {
        let pid: i64 = task["pid"].as_str().unwrap().parse().unwrap();
        let name = format!("{} ({pid})", shown(&task["task_name"]));
        let (pages, peak) = figures(task);
        assert!(task["tracenodes"].is_object(), "{task}");
        sorted(Node { name, pages, peak, children: nodes(&task["tracenodes"]) })
    };
    document.as_array().unwrap().iter().map(task).collect()
}

fn nodes(members: &Value) -> Vec<Node> {
    let node = |(name, value): (&String, &Value)| Node {
        name: escape(name.as_bytes()).into_owned(),
        pages: value["pages_alloc"].as_u64(),
        peak: value["pages_alloc_peak"].as_u64(),
        children: nodes(&value["tracenodes"]),
    };
    members.as_object().into_iter().flatten().map(node).collect()
}
