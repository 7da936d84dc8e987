//! Drawing: outlines with colours, and texts, in pixels from the upper left corner. SVG and PNG are written from it.

use std::f64::consts::PI;

/// Colour: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Color(pub(crate) [u8; 3]);

/// Outline of a piece.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outline {
    /// Rectangle: left, top, width, height.
    Rect([f64; 4]),
    /// Part of a ring.
    Wedge(Wedge),
}

/// Part of a ring between two angles, in degrees clockwise from the top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wedge {
    /// Centre of the ring.
    pub(crate) center: [f64; 2],
    /// Radius of the inner edge; 0 for a disc.
    pub(crate) inner: f64,
    /// Radius of the outer edge.
    pub(crate) outer: f64,
    /// First angle.
    pub(crate) from: f64,
    /// Last angle, at most 360 after the first.
    pub(crate) to: f64,
}

/// Filled outline.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    /// Outline.
    pub(crate) outline: Outline,
    /// Colour inside; `None` for a border alone.
    pub(crate) fill: Option<Color>,
    /// True for a piece with stripes: it stands for nodes that are not shown by themselves.
    pub(crate) is_hatched: bool,
    /// Width of the border.
    pub(crate) border: f64,
    /// Name, size and share; viewers of SVG show it at the pointer.
    pub(crate) title: String,
}

/// Line of text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    /// Start of the baseline.
    pub(crate) at: [f64; 2],
    /// Size of the font.
    pub(crate) size: f64,
    /// Rotation about the start, in degrees clockwise.
    pub(crate) angle: f64,
    /// Colour.
    pub(crate) color: Color,
    /// Characters.
    pub(crate) content: String,
    /// Width in the bundled font.
    pub(crate) width: f64,
}

/// Picture before it has the form of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Drawing {
    /// Width.
    pub(crate) width: f64,
    /// Height.
    pub(crate) height: f64,
    /// Text for readers that see no picture.
    pub(crate) title: String,
    /// Pieces, those in front last.
    pub(crate) pieces: Vec<Piece>,
    /// Texts, in front of all pieces.
    pub(crate) texts: Vec<Text>,
}

/// Point at a radius and an angle clockwise from the top.
pub(crate) fn on_circle(center: [f64; 2], radius: f64, degrees: f64) -> [f64; 2] {
    let angle = degrees * PI / 180.0;
    [center[0] + radius * angle.sin(), center[1] - radius * angle.cos()]
}

impl Wedge {
    /// Angle in degrees.
    pub(crate) fn angle(&self) -> f64 {
        self.to - self.from
    }

    /// True for a whole ring or disc.
    pub(crate) fn is_round(&self) -> bool {
        self.angle() > 359.999
    }
}
