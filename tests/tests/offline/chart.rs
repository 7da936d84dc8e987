//! `chart`: pieces of the pictures against the figures of the tree, by numbers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kmemtrace_tests::programs::{data, document, run, run_to, text};
use kmemtrace_tests::recording::Directory;
use serde_json::Value;

const REPORT: &str = "kmemtrace-report";

fn svg(shape: &str, sort: &str) -> String {
    let dir = Directory::new(&[]);
    let file = dir.file("picture.svg");
    run_to(
        0,
        REPORT,
        &["chart", "--by", "folder", "--shape", shape, "--sort", sort, "-o", file.to_str().unwrap()],
        &[&data("amd64-6.1")],
    );
    fs::read_to_string(file).unwrap()
}

/// Number behind `name="` in an element.
fn attribute(element: &str, name: &str) -> f64 {
    let value = element.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap();
    value.parse().unwrap()
}

/// Pieces with a title: element, path in the tree, and size.
fn pieces(svg: &str) -> Vec<(&str, String, f64)> {
    let pieces = svg.lines().filter(|line| line.contains("<title>") && !line.starts_with("<title>"));
    let piece = |line| {
        let title: &str = str::split(line, "<title>").nth(1).unwrap().split("</title>").next().unwrap();
        let (path, rest) = title.split_once(": ").unwrap();
        let exact = rest.rsplit('(').next().unwrap().trim_end_matches(" bytes)").trim_end_matches(')').replace(',', "");
        (line, path.to_owned(), exact.parse().unwrap())
    };
    pieces.map(piece).collect()
}

/// Sizes of the nodes of `tree` by their paths, call-sites left out.
fn sizes(sort: &str, member: &str) -> BTreeMap<String, f64> {
    fn add(node: &Value, path: &str, member: &str, sizes: &mut BTreeMap<String, f64>) {
        for child in node["children"].as_array().unwrap().iter().filter(|child| child["kind"] != "site") {
            let name = child["name"].as_str().unwrap();
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            sizes.insert(path.clone(), child[member].as_f64().unwrap());
            add(child, &path, member, sizes);
        }
    }
    let tree = document(&["tree", "--sort", sort], &data("amd64-6.1"));
    let mut sizes = BTreeMap::from([("linux".to_owned(), tree["root"][member].as_f64().unwrap())]);
    add(&tree["root"], "", member, &mut sizes);
    sizes
}

/// Checks that pieces have the sizes of their nodes; returns the size of the root.
fn assert_sizes(pieces: &[(&str, String, f64)], sizes: &BTreeMap<String, f64>) -> f64 {
    let mut known = 0;
    for (_, path, size) in pieces.iter().filter(|(_, path, _)| !path.contains("other (")) {
        assert_eq!(sizes.get(path), Some(size), "{path}");
        known += 1;
    }
    assert!(known > 5, "{pieces:?}");
    sizes["linux"]
}

#[test]
fn areas_and_widths_are_the_trees_figures() {
    for (sort, member) in [("live", "live_allocated"), ("wasted", "wasted"), ("allocs", "allocs")] {
        let sizes = sizes(sort, member);
        let (treemap, icicle) = (svg("treemap", sort), svg("icicle", sort));
        let pieces_of_map = pieces(&treemap);
        let root = assert_sizes(&pieces_of_map, &sizes);
        let area: f64 =
            pieces_of_map.iter().map(|(rect, ..)| attribute(rect, "width") * attribute(rect, "height")).sum();
        let sum: f64 = pieces_of_map.iter().map(|(.., size)| size).sum();
        assert!((sum - root).abs() < 0.5, "pieces of a treemap are the whole: {sum} of {root}");
        for (rect, path, size) in &pieces_of_map {
            let (width, height) = (attribute(rect, "width"), attribute(rect, "height"));
            let expected = area * size / root;
            assert!(
                (width * height - expected).abs() <= 0.5 * width.min(height) + 0.01,
                "{sort} {path}: {width} x {height}"
            );
        }
        let rows = pieces(&icicle);
        assert_sizes(&rows, &sizes);
        let whole = attribute(rows[0].0, "width");
        for (rect, path, size) in &rows {
            assert!((attribute(rect, "width") - whole * size / root).abs() < 0.5, "{sort} {path}: {rect}");
        }
    }
}

/// Angle of a wedge in degrees, and its outer radius, from its path `Mx yA…`.
fn angle(path: &str, center: (f64, f64)) -> (f64, f64) {
    let data = path.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
    let numbers: Vec<f64> =
        data.split(|c: char| !c.is_ascii_digit() && !".-".contains(c)).filter_map(|word| word.parse().ok()).collect();
    let [x1, y1, radius, _, _, large, _, x2, y2, ..] = numbers[..] else { panic!("{path}") };
    let of = |x: f64, y: f64| (x - center.0).atan2(center.1 - y).to_degrees();
    let turn = (of(x2, y2) - of(x1, y1)).rem_euclid(360.0);
    assert_eq!(turn > 180.0, large == 1.0, "{path}");
    (turn, radius)
}

#[test]
fn angles_are_the_trees_figures() {
    let (rings, sizes) = (svg("rings", "total"), sizes("total", "allocated"));
    let wedges = pieces(&rings);
    let root = assert_sizes(&wedges, &sizes);
    // The root is the disc in the middle: its arc begins above the centre, by its radius.
    let numbers: Vec<f64> =
        wedges[0].0.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|word| word.parse().ok()).collect();
    let center = (numbers[0], numbers[1] + numbers[2]);
    let mut checked = 0;
    for (path, name, size) in &wedges {
        if size / root > 0.999 {
            continue;
        }
        let (angle, radius) = angle(path, center);
        let off = (angle - 360.0 * size / root).abs().to_radians() * radius;
        assert!(off < 0.5, "{name}: {angle} degrees, {off} pixels off");
        assert!(angle >= 1.0 || name.contains("other"), "{name}: {angle} degrees");
        checked += 1;
    }
    assert!(checked > 10, "{checked}");
    assert!(rings.contains(">linux</text>"), "the root has its label");
}

#[test]
fn a_picture_needs_a_file_of_a_known_form() {
    let dir = Directory::new(&[]);
    let there = dir.file("there.svg");
    fs::write(&there, "x").unwrap();
    let (pdf, there) = (dir.file("x.pdf"), there.to_str().unwrap().to_owned());
    for (line, said) in [
        (&["-o", pdf.to_str().unwrap()][..], "use FILE.svg or FILE.png"),
        (&["-o", &there], "exists already"),
        (&["-o", "x.svg", "--shape", "pie"], "invalid value 'pie'"),
        (&["-o", "x.svg", "--sort", "static"], "need a built tree"),
        (&["-o", "x.svg", "--format", "json"], "chart has no --format"),
        (&[], "--output"),
    ] {
        let output = run(REPORT, &[&["chart"], line].concat(), &[&data("amd64-6.1")]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {stderr}");
        assert!(stderr.contains(said), "{line:?}: {stderr}");
    }
    assert!(!Path::new("x.svg").exists());
    run_to(0, REPORT, &["chart", "-f", "-o", &there], &[&data("amd64-6.1")]);
    assert!(fs::read_to_string(&there).unwrap().starts_with("<svg"));
}

/// Sizes of the nodes of a tree over keys by their paths.
fn sizes_by(keys: &str) -> BTreeMap<String, f64> {
    fn add(node: &Value, path: &str, sizes: &mut BTreeMap<String, f64>) {
        for child in node["children"].as_array().unwrap() {
            let path = format!("{path}{}", child["name"].as_str().unwrap());
            sizes.insert(path.clone(), child["live_allocated"].as_f64().unwrap());
            add(child, &format!("{path}/"), sizes);
        }
    }
    let root = document(&["tree", "--by", keys], &data("amd64-6.1"))["root"].clone();
    let mut sizes = BTreeMap::from([("slab".to_owned(), root["live_allocated"].as_f64().unwrap())]);
    add(&root, "", &mut sizes);
    sizes
}

#[test]
fn without_debug_information_a_picture_has_modules_and_call_sites() {
    let dir = Directory::new(&[]);
    for (options, keys) in [(&[][..], "module,site"), (&["--by", "task"], "task,site"), (&["--by", "stack"], "stack")] {
        let file = dir.file("picture.svg");
        let line = [&["chart", "-f", "--shape", "treemap", "-o", file.to_str().unwrap()], options].concat();
        run_to(0, REPORT, &line, &[&data("amd64-6.1")]);
        let svg = fs::read_to_string(&file).unwrap();
        let (pieces, sizes) = (pieces(&svg), sizes_by(keys));
        let named = pieces.iter().filter(|(_, path, _)| !path.contains("other ("));
        let known = named.inspect(|(_, path, size)| assert_eq!(sizes.get(path), Some(size), "{path}")).count();
        assert!(known > 5, "{keys}: {known} pieces");
        assert!(svg.contains(&format!("by {}", keys.replace(',', " and "))), "{keys}");
        assert!(!svg.contains("no folder known"), "{keys}");
    }
    let refused = run(REPORT, &["chart", "--by", "task", "--sort", "static", "-o", "x.svg"], &[&data("amd64-6.1")]);
    assert!(text(&refused.stderr).contains("use --by folder"), "{}", text(&refused.stderr));
}
