//! Bundled font: widths of texts and outlines of glyphs. No font needs to be installed.

use std::io;

use tiny_skia::PathBuilder;
use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// Latin-1 and some punctuation of DejaVu Sans; its licence is beside it.
const BYTES: &[u8] = include_bytes!("font/DejaVuSans-subset.ttf");

/// Name of the font for viewers of SVG.
pub(crate) const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// Height of capital letters, in sizes of the font.
pub(crate) const CAPITALS: f64 = 0.73;

/// Characters of a cut text, at least.
const LEAST_SHOWN: usize = 5;

/// Font that labels are measured and drawn with.
pub(crate) struct Font {
    face: Face<'static>,
    units: f64,
}

impl Font {
    /// The bundled font.
    ///
    /// # Errors
    /// An error of the kind `InvalidData` where the program was built with another file in its place.
    pub(crate) fn bundled() -> io::Result<Font> {
        let face = Face::parse(BYTES, 0).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let units = f64::from(face.units_per_em().max(1));
        Ok(Font { face, units })
    }

    /// Glyph of a character; a box for one that the font lacks.
    fn glyph(&self, character: char) -> GlyphId {
        self.face.glyph_index(character).unwrap_or_default()
    }

    fn advance(&self, glyph: GlyphId) -> f64 {
        f64::from(self.face.glyph_hor_advance(glyph).unwrap_or(0)) / self.units
    }

    /// Width of a text, in pixels.
    pub(crate) fn width(&self, text: &str, size: f64) -> f64 {
        text.chars().map(|character| self.advance(self.glyph(character))).sum::<f64>() * size
    }

    /// Adds each glyph's outline to `path`, in pixels from the start of the baseline, x to the right and y down.
    pub(crate) fn outline(&self, text: &str, size: f64, path: &mut PathBuilder) {
        let mut at = 0.0;
        for glyph in text.chars().map(|character| self.glyph(character)) {
            let mut placed = Placed { path, scale: size / self.units, at };
            self.face.outline_glyph(glyph, &mut placed);
            at += self.advance(glyph) * size;
        }
    }

    /// Text that is at most `width` wide, its end replaced by `…` where it is too long; `None` where too few of its characters
    /// fit to tell it from others.
    pub(crate) fn cut(&self, text: &str, size: f64, width: f64) -> Option<String> {
        if self.width(text, size) <= width {
            return Some(text.to_owned());
        }
        let mut left = width - self.width("…", size);
        let fits = |character: &char| {
            left -= self.advance(self.glyph(*character)) * size;
            left >= 0.0
        };
        let start: String = text.chars().take_while(fits).collect();
        (start.chars().count() >= LEAST_SHOWN).then(|| start.trim_end().to_owned() + "…")
    }
}

/// Moves and scales the outline of a glyph.
struct Placed<'p> {
    path: &'p mut PathBuilder,
    scale: f64,
    at: f64,
}

impl Placed<'_> {
    fn x(&self, x: f32) -> f32 {
        (f64::from(x) * self.scale + self.at) as f32
    }

    fn y(&self, y: f32) -> f32 {
        (-f64::from(y) * self.scale) as f32
    }
}

impl OutlineBuilder for Placed<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        self.path.move_to(self.x(x), self.y(y));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.path.line_to(self.x(x), self.y(y));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.path.quad_to(self.x(x1), self.y(y1), self.x(x), self.y(y));
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.path.cubic_to(self.x(x1), self.y(y1), self.x(x2), self.y(y2), self.x(x), self.y(y));
    }

    fn close(&mut self) {
        self.path.close();
    }
}
