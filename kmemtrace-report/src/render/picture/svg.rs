//! SVG: one file without scripts, styles of other files, or fonts that must be installed.

use std::borrow::Cow;
use std::io::{self, Write};

use super::colors;
use super::drawing::{Color, Drawing, Outline, Piece, Text, Wedge, on_circle};
use super::font::FAMILY;

/// Writes a drawing.
pub(crate) fn svg(drawing: &Drawing, out: &mut dyn Write) -> io::Result<()> {
    let Drawing { width, height, .. } = drawing;
    let title = text(&drawing.title);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" font-family=\"{FAMILY}\">"
    )?;
    writeln!(out, "<title>{title}</title>")?;
    writeln!(
        out,
        "<defs><pattern id=\"stripes\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
         <path d=\"M-1 1l2 -2M0 6l6 -6M5 7l2 -2\" stroke=\"{}\" stroke-width=\"1.5\"/></pattern></defs>",
        hex(colors::STRIPES)
    )?;
    writeln!(out, "<rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>", hex(colors::WHITE))?;
    drawing.pieces.iter().try_for_each(|piece| write_piece(piece, out))?;
    drawing.texts.iter().try_for_each(|line| write_text(line, out))?;
    writeln!(out, "</svg>")
}

fn write_piece(piece: &Piece, out: &mut dyn Write) -> io::Result<()> {
    let shape = shape(&piece.outline);
    let border = format!("stroke=\"{}\" stroke-width=\"{}\"", hex(colors::WHITE), number(piece.border));
    let Some(fill) = piece.fill else {
        return writeln!(out, "<{shape} fill=\"none\" {border}/>");
    };
    let title = text(&piece.title);
    let title = if title.is_empty() { String::new() } else { format!("<title>{title}</title>") };
    writeln!(out, "<{shape} fill=\"{}\" {border}>{title}</{}>", hex(fill), element(&piece.outline))?;
    if piece.is_hatched {
        writeln!(out, "<{shape} fill=\"url(#stripes)\" {border} pointer-events=\"none\"/>")?;
    }
    Ok(())
}

fn element(outline: &Outline) -> &'static str {
    match outline {
        Outline::Rect(_) => "rect",
        Outline::Wedge(_) => "path",
    }
}

/// Element with its geometry.
fn shape(outline: &Outline) -> String {
    match outline {
        Outline::Rect(sides) => {
            let [left, top, width, height] = sides.map(number);
            format!("rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"")
        }
        Outline::Wedge(wedge) => format!("path fill-rule=\"evenodd\" d=\"{}\"", path(wedge)),
    }
}

fn path(wedge: &Wedge) -> String {
    let Wedge { center, inner, outer, from, to } = *wedge;
    let point = |radius: f64, angle: f64| on_circle(center, radius, angle).map(number).join(" ");
    if wedge.is_round() {
        // An arc cannot end where it begins.
        let circle = |radius: f64| {
            let (top, bottom, radius) = (point(radius, 0.0), point(radius, 180.0), number(radius));
            format!("M{top}A{radius} {radius} 0 0 1 {bottom}A{radius} {radius} 0 0 1 {top}Z")
        };
        return if inner > 0.0 { circle(outer) + &circle(inner) } else { circle(outer) };
    }
    let is_large = u8::from(wedge.angle() > 180.0);
    let arc = |radius: f64, sweep: u8, end: String| {
        let radius = number(radius);
        format!("A{radius} {radius} 0 {is_large} {sweep} {end}")
    };
    let outer_arc = arc(outer, 1, point(outer, to));
    let inner_arc = arc(inner, 0, point(inner, from));
    format!("M{}{outer_arc}L{}{inner_arc}Z", point(outer, from), point(inner, to))
}

fn write_text(line: &Text, out: &mut dyn Write) -> io::Result<()> {
    let [x, y] = line.at.map(number);
    let rotation = if line.angle == 0.0 {
        String::new()
    } else {
        format!(" transform=\"rotate({} {x} {y})\"", number(line.angle))
    };
    // Another font than ours is squeezed into the width that was measured.
    writeln!(
        out,
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" fill=\"{}\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\" \
         pointer-events=\"none\"{rotation}>{}</text>",
        number(line.size),
        hex(line.color),
        number(line.width),
        text(&line.content)
    )
}

/// Number with three digits behind the point at most.
fn number(n: f64) -> String {
    let text = format!("{n:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn hex(Color([red, green, blue]): Color) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Text as XML has it: names are data, never markup. Characters that XML does not allow become U+FFFD.
fn text(content: &str) -> Cow<'_, str> {
    let is_plain = |c: char| !matches!(c, '<' | '>' | '&' | '"' | '\u{fffe}' | '\u{ffff}') && c >= ' ';
    if content.chars().all(is_plain) {
        return Cow::Borrowed(content);
    }
    let mut escaped = String::with_capacity(content.len() + 16);
    for character in content.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            character if is_plain(character) => escaped.push(character),
            _ => escaped.push('\u{fffd}'),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text() {
        assert_eq!(text("</title><script>&\"\u{ffff}\n"), "&lt;/title&gt;&lt;script&gt;&amp;&quot;\u{fffd}\u{fffd}");
        assert_eq!([number(-0.0001), number(2.5), number(1200.0), number(0.12345)], ["0", "2.5", "1200", "0.123"]);
    }
}
