//! Colours by Okabe and Ito, which people of any sight tell apart, lighter with each level.

use super::drawing::Color;

/// Colours of branches, in the order of their sizes.
const BRANCHES: [[u8; 3]; 7] = [
    [0x56, 0xb4, 0xe9],
    [0xe6, 0x9f, 0x00],
    [0x00, 0x9e, 0x73],
    [0xf0, 0xe4, 0x42],
    [0xcc, 0x79, 0xa7],
    [0xd5, 0x5e, 0x00],
    [0x00, 0x72, 0xb2],
];

/// Background, and borders between pieces.
pub(crate) const WHITE: Color = Color([0xff; 3]);
/// Text on light colours.
pub(crate) const BLACK: Color = Color([0x11; 3]);
/// Text of less weight, on white.
pub(crate) const DIM: Color = Color([0x55; 3]);
/// Root.
pub(crate) const ROOT: Color = Color([0xe8; 3]);
/// Pieces that stand for nodes not shown by themselves.
const VAGUE: Color = Color([0xd0; 3]);
/// Stripes on those pieces.
pub(crate) const STRIPES: Color = Color([0xb4; 3]);

/// Colour of a piece: its branch's, lighter the deeper it lies.
pub(crate) fn fill(branch: usize, depth: usize, is_vague: bool) -> Color {
    if is_vague {
        return VAGUE;
    }
    let lightness = (depth.saturating_sub(1) as f64 * 0.16).min(0.64);
    let base = BRANCHES[branch % BRANCHES.len()];
    Color(base.map(|part| (f64::from(part) + (255.0 - f64::from(part)) * lightness).round() as u8))
}

/// Black or white, whichever stands out more.
pub(crate) fn text_on(background: Color) -> Color {
    if contrast(background, BLACK) >= contrast(background, WHITE) { BLACK } else { WHITE }
}

/// Contrast of two colours, from 1 to 21, as the W3C's guidelines define it.
pub(crate) fn contrast(one: Color, other: Color) -> f64 {
    let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
    if one > other { one / other } else { other / one }
}

fn luminance(Color(parts): Color) -> f64 {
    let [red, green, blue] = parts.map(|part| {
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_be_read_on_every_colour() {
        for branch in 0..8 {
            for depth in 1..9 {
                for is_vague in [false, true] {
                    let fill = fill(branch, depth, is_vague);
                    assert!(contrast(fill, text_on(fill)) >= 4.5, "{branch} {depth} {fill:?}");
                }
            }
        }
        assert!(contrast(STRIPES, BLACK) >= 4.5 && contrast(WHITE, DIM) >= 4.5 && contrast(ROOT, BLACK) >= 4.5);
    }
}
