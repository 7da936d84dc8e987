//! Pictures of a tree: rings, treemap and icicle, as SVG and PNG.
//!
//! A layout gives each node its outline, [`drawing::Drawing`] has outlines with colours and labels, and a writer makes a file of it.

mod block;
mod cell;
mod colors;
mod drawing;
mod font;
mod icicle;
mod label;
mod layers;
mod png;
mod rings;
mod svg;
#[cfg(test)]
mod testing;
mod treemap;

use std::io::{self, Write};

use kmemtrace::documents::tree::TreeNode;
use kmemtrace_abi::text::units;

pub(crate) use block::{MAX_LEVELS, Measure};

use block::Block;
use cell::Cell;
use drawing::{Drawing, Outline, Piece, Text};
use font::Font;
use label::Label;

/// Shape of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Rings around the root.
    Rings,
    /// Rectangles within rectangles.
    Treemap,
    /// Rows below the root.
    Icicle,
}

/// Form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileForm {
    /// Scalable Vector Graphics.
    Svg,
    /// Portable Network Graphics.
    Png,
}

/// Picture that is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// Shape.
    pub(crate) shape: Shape,
    /// Figure that nodes are sized by.
    pub(crate) measure: Measure,
    /// Limit of levels below the root.
    pub(crate) depth: usize,
    /// Second line of the heading, escaped: the trace and its verdict.
    pub(crate) subtitle: String,
}

/// Left, right and lower edge around a picture.
const EDGE: f64 = 24.0;
/// Height of the heading.
const HEADING: f64 = 76.0;
/// Side of the rings.
const DISC: f64 = 1120.0;
/// Width of pictures of rectangles.
const WIDTH: f64 = 1400.0;
/// Height of pictures of rectangles, without heading.
const HEIGHT: f64 = 860.0;

/// Writes the picture of a tree.
///
/// # Errors
/// Errors of the output.
pub(crate) fn write(root: &TreeNode, chart: &Chart, form: FileForm, out: &mut dyn Write) -> io::Result<()> {
    let font = Font::bundled()?;
    let drawing = draw(&Block::of(root, chart.measure, chart.depth), chart, &font);
    match form {
        FileForm::Svg => svg::svg(&drawing, out),
        FileForm::Png => png::png(&drawing, &font, out),
    }
}

fn draw(root: &Block, chart: &Chart, font: &Font) -> Drawing {
    let place = [EDGE, HEADING, WIDTH, HEIGHT];
    let cells = match chart.shape {
        Shape::Rings => rings::rings(root, [EDGE + DISC / 2.0, HEADING + DISC / 2.0], DISC / 2.0),
        Shape::Treemap => treemap::treemap(root, place),
        Shape::Icicle => icicle::icicle(root, place),
    };
    let width = 2.0 * EDGE + if chart.shape == Shape::Rings { DISC } else { WIDTH };
    let bottom = cells.iter().map(|cell| match cell.outline {
        Outline::Rect([_, top, _, height]) => top + height,
        Outline::Wedge(wedge) => wedge.center[1] + DISC / 2.0,
    });
    let height = (bottom.fold(HEADING, f64::max) + EDGE).ceil();
    let (title, texts) = heading(root, chart, font, width);
    let mut drawing = Drawing { width, height, title, texts, ..Drawing::default() };
    cells.iter().for_each(|cell| paint(cell, root, chart, font, &mut drawing));
    if chart.shape == Shape::Treemap {
        frame(&cells, &mut drawing);
        legend(&cells, chart, font, &mut drawing);
    }
    drawing
}

/// Adds a line below a treemap with the branches and their colours, as many as fit.
fn legend(cells: &[Cell], chart: &Chart, font: &Font, drawing: &mut Drawing) {
    let (size, swatch, gap) = (13.0, 14.0, 7.0);
    let (mut left, baseline) = (EDGE, drawing.height + 4.0);
    for cell in cells.iter().filter(|cell| cell.depth() == 1) {
        let name = cell.path.last().map_or("", String::as_str);
        let content = format!("{name} {}", chart.measure.text(cell.size));
        let width = font.width(&content, size);
        if left + swatch + gap + width > drawing.width - EDGE {
            break;
        }
        drawing.pieces.push(Piece {
            outline: Outline::Rect([left, baseline - swatch + 2.0, swatch, swatch]),
            fill: Some(colors::fill(cell.branch.unwrap_or(0), 2, cell.is_vague)),
            is_hatched: cell.is_vague,
            border: 0.0,
            title: String::new(),
        });
        let at = [left + swatch + gap, baseline];
        drawing.texts.push(Text { at, size, angle: 0.0, color: colors::BLACK, content, width });
        left += swatch + width + 4.0 * gap;
    }
    drawing.height += EDGE;
}

/// Title of the picture, and the texts of its heading.
fn heading(root: &Block, chart: &Chart, font: &Font, width: f64) -> (String, Vec<Text>) {
    let title = format!("{}: {}, {}", chart.measure.title(), root.name, chart.measure.text(root.size));
    let mut texts = Vec::new();
    for (content, size, baseline, color) in
        [(&title, 22.0, 34.0, colors::BLACK), (&chart.subtitle, 13.0, 58.0, colors::DIM)]
    {
        if let Some(content) = font.cut(content, size, width - 2.0 * EDGE) {
            let width = font.width(&content, size);
            texts.push(Text { at: [EDGE, baseline], size, angle: 0.0, color, content, width });
        }
    }
    (title, texts)
}

/// Adds a cell's piece and label.
fn paint(cell: &Cell, root: &Block, chart: &Chart, font: &Font, drawing: &mut Drawing) {
    // Cells of a treemap cover their parent.
    if chart.shape == Shape::Treemap && cell.has_children {
        return;
    }
    let depth = cell.depth();
    let fill = if depth == 0 { colors::ROOT } else { colors::fill(cell.branch.unwrap_or(0), depth, cell.is_vague) };
    let size = chart.measure.text(cell.size);
    let path = cell.path.join("/");
    let path = if path.is_empty() { root.name.clone() } else { path };
    let share = units::percent(cell.size, root.size);
    let title = format!("{path}: {size}, {share} ({})", chart.measure.exact(cell.size));
    drawing.pieces.push(Piece {
        outline: cell.outline,
        fill: Some(fill),
        is_hatched: cell.is_vague,
        border: border(depth),
        title,
    });
    let name = cell.path.last().unwrap_or(&root.name);
    let above = match chart.shape {
        Shape::Treemap => cell.path.split_last().map(|(_, above)| above.join("/")).unwrap_or_default(),
        _ => String::new(),
    };
    drawing.texts.extend(label::label(font, cell, &Label { name, size: &size, above: &above }, fill));
}

/// Width of a border: the thicker, the nearer to the root.
fn border(depth: usize) -> f64 {
    match depth {
        0 | 1 => 2.5,
        2 => 1.5,
        _ => 0.8,
    }
}

/// Adds borders of folders to a treemap, those of the greatest in front.
fn frame(cells: &[Cell], drawing: &mut Drawing) {
    for depth in [2, 1] {
        let folders = cells.iter().filter(|cell| cell.depth() == depth && cell.has_children);
        drawing.pieces.extend(folders.map(|cell| Piece {
            outline: cell.outline,
            fill: None,
            is_hatched: false,
            border: if depth == 1 { 6.0 } else { 3.0 },
            title: String::new(),
        }));
    }
}

#[cfg(test)]
mod tests;
