//! Tests of whole pictures.

use kmemtrace::documents::sums::PrintedStats;
use kmemtrace::documents::tree::NodeKind;

use super::testing::{block, random_tree};
use super::*;

const STATS: PrintedStats = PrintedStats {
    allocs: 0,
    failed_allocs: 0,
    requested: 0,
    allocated: 0,
    wasted: 0,
    frees: 0,
    inferred_frees: 0,
    cross_cpu: None,
    live_objects: 0,
    live_requested: 0,
    live_allocated: 0,
    live_wasted: 0,
    peak_live_allocated: None,
    live_is_upper_bound: false,
};

fn node(name: &str, kind: NodeKind, live: u64, children: Vec<TreeNode>) -> TreeNode {
    TreeNode {
        name: name.as_bytes().into(),
        kind,
        stats: PrintedStats { live_allocated: live, ..STATS },
        static_bytes: None,
        current: None,
        folded: 0,
        children,
    }
}

#[test]
fn look() {
    let Ok(path) = std::env::var("X22_LOOK") else { return };
    let text = std::fs::read_to_string(path).unwrap();
    let mut root = node("linux", NodeKind::Folder, 0, vec![]);
    fn add(node_: &mut TreeNode, path: &[String], live: u64) {
        node_.stats.live_allocated += live;
        if let Some((first, rest)) = path.split_first() {
            let at = node_.children.iter().position(|c| &*c.name == first.as_bytes()).unwrap_or_else(|| {
                node_.children.push(node(first, NodeKind::Folder, 0, vec![]));
                node_.children.len() - 1
            });
            add(&mut node_.children[at], rest, live);
        }
    }
    for line in text.lines() {
        let (live, path) = line.split_once(' ').unwrap();
        let path: Vec<String> = path.split('/').map(str::to_owned).collect();
        add(&mut root, &path, live.parse().unwrap());
    }
    for (shape, name) in [(Shape::Rings, "rings"), (Shape::Treemap, "treemap"), (Shape::Icicle, "icicle")] {
        for (form, ext) in [(FileForm::Svg, "svg"), (FileForm::Png, "png")] {
            let chart = Chart {
                shape,
                measure: Measure::Live,
                depth: 24,
                subtitle: "boot · Linux 6.1.0-54 x86_64 · complete".into(),
            };
            let mut out = Vec::new();
            let begin = std::time::Instant::now();
            write(&root, &chart, form, &mut out).unwrap();
            eprintln!("{name}.{ext} {} bytes, {:?}", out.len(), begin.elapsed());
            std::fs::write(format!("/tmp/x22chart-{name}.{ext}"), out).unwrap();
        }
    }
}
