//! PNG: the drawing as pixels. Texts are outlines of the bundled font, so none is missing.

use std::io::{self, Write};

use tiny_skia::{
    Color as Rgba, FillRule, FilterQuality, Paint, Path, PathBuilder, Pattern, Pixmap, SpreadMode, Stroke, Transform,
};

use super::colors;
use super::drawing::{Color, Drawing, Outline, Piece, Text, Wedge, on_circle};
use super::font::Font;

/// Pixels of the file for one of the drawing: sharp on fine screens and in print.
pub(crate) const SCALE: f32 = 2.0;
/// Side of a square of stripes, in pixels of the file.
const STRIPES: u32 = 12;

/// Writes a drawing.
///
/// # Errors
/// Errors of the output, and one of the kind `InvalidInput` for a picture that is too large.
pub(crate) fn png(drawing: &Drawing, font: &Font, out: &mut dyn Write) -> io::Result<()> {
    // tiny-skia 0.12 panics there (seen on s390x).
    if cfg!(target_endian = "big") {
        let why = "PNG is not drawn on a big-endian machine: name a file that ends with .svg, or copy the recording to another machine";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let pixels = painted(drawing, font).ok_or(io::ErrorKind::InvalidInput)?;
    out.write_all(&pixels.encode_png().map_err(io::Error::other)?)
}

/// Drawing as pixels; `None` if it is too large.
fn painted(drawing: &Drawing, font: &Font) -> Option<Pixmap> {
    let side = |length: f64| (length * f64::from(SCALE)).ceil() as u32;
    let mut pixels = Pixmap::new(side(drawing.width), side(drawing.height))?;
    pixels.fill(rgba(colors::WHITE));
    let stripes = stripes()?;
    for piece in &drawing.pieces {
        paint_piece(piece, &stripes, &mut pixels);
    }
    for line in &drawing.texts {
        paint_text(line, font, &mut pixels);
    }
    Some(pixels)
}

fn rgba(Color([red, green, blue]): Color) -> Rgba {
    Rgba::from_rgba8(red, green, blue, 0xff)
}

fn paint(color: Color) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color(rgba(color));
    paint
}

/// Square of stripes on nothing.
fn stripes() -> Option<Pixmap> {
    let mut square = Pixmap::new(STRIPES, STRIPES)?;
    let mut lines = PathBuilder::new();
    let side = STRIPES as f32;
    for shift in [-side, 0.0, side] {
        lines.move_to(shift - side, 2.0 * side);
        lines.line_to(shift + 2.0 * side, -side);
    }
    let stroke = Stroke { width: 1.5 * SCALE, ..Stroke::default() };
    square.stroke_path(&lines.finish()?, &paint(colors::STRIPES), &stroke, Transform::identity(), None);
    Some(square)
}

fn paint_piece(piece: &Piece, stripes: &Pixmap, pixels: &mut Pixmap) {
    let Some(path) = path(&piece.outline) else { return };
    let scale = Transform::from_scale(SCALE, SCALE);
    if let Some(fill) = piece.fill {
        pixels.fill_path(&path, &paint(fill), FillRule::EvenOdd, scale, None);
    }
    if piece.is_hatched {
        let to_pixels = Transform::from_scale(1.0 / SCALE, 1.0 / SCALE);
        let shader = Pattern::new(stripes.as_ref(), SpreadMode::Repeat, FilterQuality::Nearest, 1.0, to_pixels);
        let hatched = Paint { shader, anti_alias: true, ..Paint::default() };
        pixels.fill_path(&path, &hatched, FillRule::EvenOdd, scale, None);
    }
    let stroke = Stroke { width: piece.border as f32, ..Stroke::default() };
    pixels.stroke_path(&path, &paint(colors::WHITE), &stroke, scale, None);
}

fn path(outline: &Outline) -> Option<Path> {
    match outline {
        Outline::Rect(sides) => {
            let [left, top, width, height] = sides.map(|side| side as f32);
            Some(PathBuilder::from_rect(tiny_skia::Rect::from_xywh(left, top, width, height)?))
        }
        Outline::Wedge(wedge) => wedge_path(wedge),
    }
}

fn wedge_path(wedge: &Wedge) -> Option<Path> {
    let mut path = PathBuilder::new();
    if wedge.is_round() {
        let [x, y] = wedge.center.map(|part| part as f32);
        for radius in [wedge.outer, wedge.inner] {
            if radius > 0.0 {
                path.push_circle(x, y, radius as f32);
            }
        }
        return path.finish();
    }
    let [x, y] = on_circle(wedge.center, wedge.outer, wedge.from).map(|part| part as f32);
    path.move_to(x, y);
    arc(&mut path, wedge.center, wedge.outer, (wedge.from, wedge.to));
    let [x, y] = on_circle(wedge.center, wedge.inner, wedge.to).map(|part| part as f32);
    path.line_to(x, y);
    arc(&mut path, wedge.center, wedge.inner, (wedge.to, wedge.from));
    path.close();
    path.finish()
}

/// Adds an arc as curves of at most 30 degrees, whose error is far below a pixel.
fn arc(path: &mut PathBuilder, center: [f64; 2], radius: f64, (from, to): (f64, f64)) {
    let parts = ((to - from).abs() / 30.0).ceil().max(1.0);
    let step = (to - from) / parts;
    let handle = radius * 4.0 / 3.0 * (step.to_radians() / 4.0).tan();
    for part in 0..parts as usize {
        let (begin, end) = (from + step * part as f64, from + step * (part + 1) as f64);
        // The direction of a circle at an angle is that of the angle a quarter further on.
        let ahead = |angle: f64, length: f64| {
            let [x, y] = on_circle([0.0; 2], length, angle + 90.0);
            let [from_x, from_y] = on_circle(center, radius, angle);
            [from_x + x, from_y + y].map(|part| part as f32)
        };
        let ([x1, y1], [x2, y2]) = (ahead(begin, handle), ahead(end, -handle));
        let [x, y] = on_circle(center, radius, end).map(|part| part as f32);
        path.cubic_to(x1, y1, x2, y2, x, y);
    }
}

fn paint_text(line: &Text, font: &Font, pixels: &mut Pixmap) {
    let mut outline = PathBuilder::new();
    font.outline(&line.content, line.size, &mut outline);
    let Some(path) = outline.finish() else { return };
    let [x, y] = line.at.map(|part| part as f32);
    let place = Transform::from_rotate(line.angle as f32).post_translate(x, y).post_scale(SCALE, SCALE);
    pixels.fill_path(&path, &paint(line.color), FillRule::Winding, place, None);
}
