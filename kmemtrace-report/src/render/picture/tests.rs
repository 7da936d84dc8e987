//! Tests of whole pictures.

use kmemtrace::Figure;
use kmemtrace::documents::sums::PrintedStats;
use kmemtrace::documents::tree::NodeKind;
use tiny_skia::Pixmap;

use super::drawing::Color;
use super::*;

fn node(name: &str, kind: NodeKind, live: u64, children: Vec<TreeNode>) -> TreeNode {
    TreeNode {
        name: name.as_bytes().into(),
        kind,
        stats: PrintedStats { live_allocated: Some(live), ..PrintedStats::default() },
        static_bytes: Some(live.saturating_mul(2)),
        current: Some(live.saturating_mul(3)),
        folded: if kind == NodeKind::Others { 7 } else { 0 },
        children,
        ..TreeNode::default()
    }
}

fn tree() -> TreeNode {
    let function =
        |name, live| node(name, NodeKind::Function, live, vec![node("site+0x1", NodeKind::Site, live, vec![])]);
    let file = node("inode.c", NodeKind::File, 600, vec![function("alloc_inode", 600)]);
    let others = node("others", NodeKind::Others, 100, vec![]);
    let folders = vec![
        node("fs", NodeKind::Folder, 600, vec![file]),
        node("mm", NodeKind::Folder, 300, vec![function("<img>&", 300)]),
        others,
        node("empty", NodeKind::Folder, 0, vec![]),
    ];
    node("linux", NodeKind::Folder, 1000, folders)
}

fn chart(shape: Shape) -> Chart {
    Chart {
        shape,
        measure: Measure::Figure(Figure::LiveAllocated),
        depth: MAX_LEVELS,
        subtitle: "trace · COMPLETE".to_owned(),
    }
}

fn file(shape: Shape, form: FileForm) -> Vec<u8> {
    let mut out = Vec::new();
    write(&tree(), &chart(shape), form, &mut out).unwrap();
    out
}

/// Pixels of this colour.
fn count(pixels: &Pixmap, Color([red, green, blue]): Color) -> f64 {
    let is_same =
        |pixel: &&tiny_skia::PremultipliedColorU8| (pixel.red(), pixel.green(), pixel.blue()) == (red, green, blue);
    pixels.pixels().iter().filter(is_same).count() as f64
}

#[test]
#[cfg_attr(target_endian = "big", ignore = "PNG is not drawn on a big-endian machine")]
fn pixels_of_a_treemap_are_sizes_and_labels_are_there() {
    let pixels = Pixmap::decode_png(&file(Shape::Treemap, FileForm::Png)).unwrap();
    let scale = f64::from(png::SCALE).powi(2);
    // Cells of functions lie two and three levels below the root.
    let (fs, mm) = (colors::fill(0, 3, false), colors::fill(1, 2, false));
    let text = count(&pixels, colors::BLACK) / scale;
    for (color, share) in [(fs, 0.6), (mm, 0.3)] {
        let area = count(&pixels, color) / scale;
        // Borders of six pixels at most, the swatch, and labels cover some of it.
        let (whole, border) = (WIDTH * HEIGHT * share, 2.0 * (WIDTH + HEIGHT) * 3.0);
        assert!(area < whole + 400.0 && area > whole - border - 8.0 * text - 2000.0, "{area} of {whole}");
    }
    assert!(text > 1000.0, "{text} pixels of text");
}

#[test]
#[cfg_attr(target_endian = "big", ignore = "PNG is not drawn on a big-endian machine")]
fn labels_are_drawn_where_they_were_laid_out() {
    let font = Font::bundled().unwrap();
    let content = "alloc_inode".to_owned();
    let width = font.width(&content, 16.0);
    let line = Text { at: [10.0, 40.0], size: 16.0, angle: 0.0, color: colors::BLACK, content, width };
    let drawing = Drawing { width: 200.0, height: 60.0, texts: vec![line], ..Drawing::default() };
    let mut out = Vec::new();
    png::png(&drawing, &font, &mut out).unwrap();
    let pixels = Pixmap::decode_png(&out).unwrap();
    let is_dark = |x: u32, y: u32| pixels.pixel(x, y).is_some_and(|pixel| pixel.red() < 0x80);
    let dark: Vec<u32> = (0..400).filter(|x| (0..120).any(|y| is_dark(*x, y))).collect();
    let (first, last) = (f64::from(dark[0]) / 2.0, f64::from(dark[dark.len() - 1]) / 2.0);
    assert!((first - 10.0).abs() < 2.0 && (last - 10.0 - width).abs() < 2.0, "{first} to {last}, {width} wide");
    assert!((0..400).all(|x| (0..50).all(|y| !is_dark(x, y))), "nothing above the letters");
}

#[test]
fn svg_tells_names_as_text() {
    for shape in [Shape::Rings, Shape::Treemap, Shape::Icicle] {
        let svg = String::from_utf8(file(shape, FileForm::Svg)).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("<title>mm/&lt;img&gt;&amp;: 300 B, 30.0% (300 bytes)</title>"), "{shape:?}: {svg}");
        assert!(svg.contains("<title>other (7): 100 B, 10.0% (100 bytes)</title>"), "{shape:?}: {svg}");
        assert!(!svg.contains("<img>") && !svg.contains("empty") && !svg.contains("site+0x1"), "{shape:?}: {svg}");
        assert!(svg.contains(">1000 B</text>") || shape == Shape::Treemap, "the root has its size: {svg}");
        assert!(!svg.contains("http") || svg.matches("http").count() == 1, "the name of the format alone: {svg}");
    }
}

#[test]
fn wedges_are_labelled_from_five_degrees() {
    let children =
        (0..60).map(|n| node(&format!("child{n:02}"), NodeKind::Folder, if n < 30 { 10 } else { 15 }, vec![]));
    let root = node("linux", NodeKind::Folder, 750, children.collect());
    let mut out = Vec::new();
    write(&root, &chart(Shape::Rings), FileForm::Svg, &mut out).unwrap();
    let svg = String::from_utf8(out).unwrap();
    // 10 of 750 are 4.8 degrees, 15 are 7.2.
    let labels = |range: std::ops::Range<u32>| {
        range
            .filter(|n| svg.contains(&format!(">child{n:02}</text>")) || svg.contains(&format!(">child{n:02} ")))
            .count()
    };
    assert_eq!((labels(0..30), labels(30..60)), (0, 30), "{svg}");
}

#[test]
fn a_measure_sizes_the_nodes() {
    for (measure, size) in [
        (Measure::Figure(Figure::LiveAllocated), 1000),
        (Measure::Static, 2000),
        (Measure::Current, 3000),
        (Measure::Figure(Figure::Allocs), 0),
    ] {
        assert_eq!(Block::of(&tree(), measure, MAX_LEVELS).size, size, "{measure:?}");
    }
    let shallow = Block::of(&tree(), Measure::Figure(Figure::LiveAllocated), 1);
    assert!(shallow.children.iter().all(|child| child.children.is_empty()) && shallow.children.len() == 3);
    // Static bytes of a file stand beside its functions.
    let file = |block: &Block| {
        block.children[0].children[0].children.iter().map(|child| child.name.clone()).collect::<Vec<_>>()
    };
    let mut current = tree();
    current.children[0].children[0].children[0].current = Some(600);
    assert_eq!(file(&Block::of(&current, Measure::Current, MAX_LEVELS)), ["(static)", "alloc_inode"]);
}

#[test]
fn a_deep_or_an_empty_tree_is_drawn() {
    let mut deep = node("leaf", NodeKind::Function, 1, vec![]);
    for _ in 0..1000 {
        deep = node("folder", NodeKind::Folder, 1, vec![deep]);
    }
    let empty = node("linux", NodeKind::Folder, 0, vec![]);
    let greatest = node("linux", NodeKind::Folder, u64::MAX, vec![node("fs", NodeKind::Folder, u64::MAX, vec![]); 3]);
    for root in [deep, empty, greatest] {
        for shape in [Shape::Rings, Shape::Treemap, Shape::Icicle] {
            let mut out = Vec::new();
            write(&root, &chart(shape), FileForm::Svg, &mut out).unwrap();
            assert!(!String::from_utf8(out).unwrap().contains("NaN"), "{shape:?}");
        }
    }
}
