//! Explanations on lines that fit a terminal.

/// Words of `text` on lines of at most `width` columns, each with `indent` blanks before it, and a line break at the end. A longer
/// word has a line of its own. Every byte counts as a column: explanations are ASCII.
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut out = " ".repeat(indent);
    let mut column = 0;
    for word in text.split_whitespace() {
        if column > 0 && word.len().saturating_add(column) >= width.saturating_sub(indent) {
            out.push('\n');
            out += &" ".repeat(indent);
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column = column.saturating_add(1);
        }
        out.push_str(word);
        column = column.saturating_add(word.len());
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_no_wider_than_asked() {
        assert_eq!(wrapped("aa bb  cc\ndd", 5, 0), "aa bb\ncc dd\n");
        assert_eq!(wrapped("aa bb cc", 5, 2), "  aa\n  bb\n  cc\n");
        assert_eq!(wrapped("a longest b", 5, 0), "a\nlongest\nb\n");
    }
}
