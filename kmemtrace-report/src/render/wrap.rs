//! Lines of text around tables: broken where the screen ends.

use super::cut;

/// Blanks between two parts of a line.
const BETWEEN: &str = "   ";

/// Text broken between words, so that no line exceeds `limit`; lines after the first begin with `indent` blanks. A word that is longer
/// than a line loses its middle.
pub(super) fn words(text: &str, indent: usize, limit: Option<usize>, mark: char) -> String {
    let Some(limit) = limit else { return text.to_owned() };
    let pieces: Vec<&str> = text.split(' ').collect();
    joined(&pieces, " ", indent, limit, mark)
}

/// Parts joined by blanks, and broken between parts where the line would exceed `limit`; a longer part between its words. Lines after
/// the first begin with `indent` blanks.
pub(super) fn parts(parts: &[String], indent: usize, limit: Option<usize>, mark: char) -> String {
    let Some(limit) = limit else { return parts.join(BETWEEN) };
    let limit_of_part = Some(limit.saturating_sub(indent));
    let whole: Vec<String> = parts.iter().map(|part| words(part, indent, limit_of_part, mark)).collect();
    let pieces: Vec<&str> = whole.iter().map(String::as_str).collect();
    joined(&pieces, BETWEEN, indent, limit, mark)
}

fn joined(pieces: &[&str], between: &str, indent: usize, limit: usize, mark: char) -> String {
    let mut out = String::new();
    let mut used = 0;
    for (number, piece) in pieces.iter().enumerate() {
        let first = piece.split('\n').next().map_or(0, cut::width);
        if number > 0 && used + between.len() + first > limit {
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        } else if number > 0 {
            out.push_str(between);
            used += between.len();
        }
        if piece.contains('\n') {
            out.push_str(piece);
            used = piece.rsplit('\n').next().map_or(0, cut::width);
        } else {
            let piece = cut::middle(piece, limit.saturating_sub(used), mark);
            out.push_str(&piece);
            used += cut::width(&piece);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_long_words_lose_their_middle() {
        assert_eq!(words("one two three", 2, Some(8), '…'), "one two\n  three");
        assert_eq!(words("one two three", 2, None, '…'), "one two three");
        assert_eq!(words(&"x".repeat(20), 0, Some(10), '…'), "xxxxxx…xxx");
        assert_eq!(words("  a b", 4, Some(80), '…'), "  a b", "blanks at the start stay");
        assert_eq!(
            words("freed 12   itself 3 us", 2, Some(16), '…'),
            "freed 12\n  itself 3 us",
            "no blanks at the end"
        );
    }

    #[test]
    fn parts_stay_together_as_long_as_they_fit() {
        let text = |limit| parts(&["COMPLETE".into(), "12 events".into(), "0 lost".into()], 2, Some(limit), '…');
        assert_eq!(text(40), "COMPLETE   12 events   0 lost");
        assert_eq!(text(25), "COMPLETE   12 events\n  0 lost");
        let long = parts(&["LOSSY".into(), "cut: cpu0.out, cpu1.out, cpu2.out".into()], 2, Some(20), '…');
        assert!(long.lines().all(|line| cut::width(line) <= 20), "{long}");
        assert!(long.contains("cpu2.out"), "{long}");
    }
}
