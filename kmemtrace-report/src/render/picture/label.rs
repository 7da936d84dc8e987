//! Labels: name and size of a cell, where they fit into its outline. What does not fit is left out, never drawn over a border.

use super::cell::Cell;
use super::colors;
use super::drawing::{Color, Outline, Text, Wedge, on_circle};
use super::font::{CAPITALS, Font};

/// Angle from which wedges have labels.
const LABELLED_ANGLE: f64 = 5.0;
/// Sizes of the font, the greatest first.
const SIZES: [f64; 4] = [16.0, 14.0, 12.5, 11.0];
/// Distance of two lines, in sizes of the font.
const LINE: f64 = 1.25;
/// Room between a label and the border.
const MARGIN: f64 = 5.0;

/// Label of a cell.
pub(crate) struct Label<'l> {
    /// Name of the node.
    pub(crate) name: &'l str,
    /// Size as text.
    pub(crate) size: &'l str,
    /// Names of the folders above it, where the picture does not show them.
    pub(crate) above: &'l str,
}

/// Lines of one label, in one size of the font.
struct LabelLines {
    lines: Vec<String>,
    size: f64,
    /// Number of characters that are shown.
    shown: usize,
}

impl LabelLines {
    fn height(&self) -> f64 {
        self.lines.len() as f64 * self.size * LINE
    }
}

/// Texts of a cell's label; none where it does not fit.
pub(crate) fn label(font: &Font, cell: &Cell, label: &Label<'_>, fill: Color) -> Vec<Text> {
    let color = colors::text_on(fill);
    match cell.outline {
        Outline::Rect(rect) => in_rect(font, label, rect, color),
        Outline::Wedge(wedge) if cell.depth() == 0 => in_disc(font, label, wedge, color),
        Outline::Wedge(wedge) if wedge.angle() < LABELLED_ANGLE => Vec::new(),
        Outline::Wedge(wedge) => in_wedge(font, label, wedge, color),
    }
}

/// Lines that fit a box: the folders above, the name and the size, or as many of them as there is room for.
fn fitted(font: &Font, label: &Label<'_>, [width, height]: [f64; 2]) -> Option<LabelLines> {
    let of_size = |size: f64| {
        let room = (height / (size * LINE)) as usize;
        let name = if room > 0 { font.cut(label.name, size, width)? } else { return None };
        let mut shown = name.chars().count();
        let mut lines = vec![name];
        if room > 1 && font.width(label.size, size) <= width {
            lines.push(label.size.to_owned());
            shown += label.size.len();
        }
        let nearest = label.above.rsplit('/').next().unwrap_or_default();
        let above = [label.above, nearest].into_iter().find(|above| font.width(above, size) <= width);
        if let Some(above) = above.filter(|above| room > 2 && !above.is_empty()) {
            lines.insert(0, above.to_owned());
            shown += above.len();
        }
        Some(LabelLines { lines, size, shown })
    };
    // The greatest font that shows as much as the smallest one.
    let all: Vec<LabelLines> = SIZES.into_iter().filter_map(of_size).collect();
    let most = all.iter().map(|lines| lines.shown).max()?;
    all.into_iter().find(|lines| lines.shown == most)
}

/// Texts of lines around a point, rotated by `angle`.
fn centred(font: &Font, lines: &LabelLines, [x, y]: [f64; 2], angle: f64, color: Color) -> Vec<Text> {
    let (sin, cos) = angle.to_radians().sin_cos();
    let first = -(lines.lines.len() as f64 - 1.0) / 2.0;
    let text = |(number, content): (usize, &String)| {
        let width = font.width(content, lines.size);
        let down = (first + number as f64) * lines.size * LINE + CAPITALS * lines.size / 2.0;
        let at = [x - cos * width / 2.0 - sin * down, y - sin * width / 2.0 + cos * down];
        Text { at, size: lines.size, angle, color, content: content.clone(), width }
    };
    lines.lines.iter().enumerate().map(text).collect()
}

fn in_rect(font: &Font, label: &Label<'_>, [left, top, width, height]: [f64; 4], color: Color) -> Vec<Text> {
    let center = [left + width / 2.0, top + height / 2.0];
    let (wide, high) = (width - 2.0 * MARGIN, height - 2.0 * MARGIN.min(3.0));
    let upright = fitted(font, label, [wide, high]);
    let turned = if height > 1.5 * width { fitted(font, label, [height - 2.0 * MARGIN, width - 4.0]) } else { None };
    let shown = |lines: &Option<LabelLines>| lines.as_ref().map_or(0, |lines| lines.shown);
    // Upright text is easier to read, even if a little is cut.
    let (lines, angle) = if shown(&turned) > shown(&upright) + 3 { (turned, -90.0) } else { (upright, 0.0) };
    lines.map(|lines| centred(font, &lines, center, angle, color)).unwrap_or_default()
}

fn in_disc(font: &Font, label: &Label<'_>, wedge: Wedge, color: Color) -> Vec<Text> {
    let side = wedge.outer * 2.0;
    let lines = fitted(font, label, [side * 0.8, side * 0.5]);
    lines.map(|lines| centred(font, &lines, wedge.center, 0.0, color)).unwrap_or_default()
}

/// Text along the ring where it fits whole, else from the centre outwards.
fn in_wedge(font: &Font, label: &Label<'_>, wedge: Wedge, color: Color) -> Vec<Text> {
    let (along, outwards) = (along_ring(font, label, wedge), outwards(font, label, wedge));
    let shown = |lines: &Option<(LabelLines, f64)>| lines.as_ref().map_or(0, |(lines, _)| lines.shown);
    let middle = (wedge.from + wedge.to) / 2.0;
    if shown(&along) >= shown(&outwards) {
        let Some((lines, radius)) = along else { return Vec::new() };
        // The lower half stands on its head otherwise.
        let angle = if (90.0..270.0).contains(&middle) { middle - 180.0 } else { middle };
        return centred(font, &lines, on_circle(wedge.center, radius, middle), angle, color);
    }
    let Some((lines, radius)) = outwards else { return Vec::new() };
    let angle = if middle > 180.0 { middle + 90.0 } else { middle - 90.0 };
    centred(font, &lines, on_circle(wedge.center, radius, middle), angle, color)
}

/// Lines across the middle of a wedge, and the radius of their centre.
fn along_ring(font: &Font, label: &Label<'_>, wedge: Wedge) -> Option<(LabelLines, f64)> {
    let half = (wedge.angle() / 2.0).min(85.0).to_radians();
    let width = wedge.outer - wedge.inner;
    let candidate = |(rows, shift): (f64, f64)| {
        let fits = |size: f64| {
            let height = rows * size * LINE;
            let lowest = wedge.inner + MARGIN.min(4.0);
            let highest = wedge.outer - MARGIN.min(4.0) - height;
            if highest < lowest {
                return None;
            }
            let bottom = lowest + (highest - lowest) * shift;
            let by_sides = bottom * half.tan() - MARGIN;
            let by_edge = ((wedge.outer - 2.0).powi(2) - (bottom + height).powi(2)).max(0.0).sqrt() - MARGIN;
            let half_width = by_sides.min(by_edge);
            let lines = fitted(font, label, [2.0 * half_width, height + 0.01])?;
            let radius = bottom + height / 2.0;
            Some((lines, radius))
        };
        SIZES.into_iter().find_map(fits)
    };
    let all: Vec<(LabelLines, f64)> = [(2.0, 0.5), (2.0, 0.25), (2.0, 0.0), (1.0, 0.5), (1.0, 0.25), (1.0, 0.0)]
        .into_iter()
        .filter_map(candidate)
        .collect();
    let most = all.iter().map(|(lines, _)| lines.shown).max()?;
    all.into_iter().find(|(lines, _)| lines.shown == most).filter(|(lines, _)| lines.height() <= width)
}

/// Lines along the radius, and the radius of their centre.
fn outwards(font: &Font, label: &Label<'_>, wedge: Wedge) -> Option<(LabelLines, f64)> {
    let half = (wedge.angle() / 2.0).min(60.0).to_radians();
    let length = wedge.outer - wedge.inner - 2.0 * MARGIN;
    let radius = (wedge.inner + wedge.outer) / 2.0;
    // The inner end is the narrow one.
    let narrow = 2.0 * (wedge.inner + MARGIN) * half.tan() - 2.0;
    let lines = fitted(font, label, [length, narrow]);
    if lines.is_some() {
        return lines.map(|lines| (lines, radius));
    }
    // A short text may stand further out, where the wedge is wider.
    let size = SIZES[SIZES.len() - 1];
    let needed = (size + 2.0) / (2.0 * half.tan());
    let from = needed.max(wedge.inner + MARGIN);
    let length = wedge.outer - MARGIN - from;
    let content = font.cut(label.name, size, length)?;
    let lines = LabelLines { shown: content.chars().count(), lines: vec![content], size };
    Some((lines, from + length / 2.0))
}
