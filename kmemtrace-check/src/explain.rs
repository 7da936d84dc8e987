//! Explanations of codes, for `--explain CODE`.

use std::io::Write;

use kmemtrace_abi::fault::{Code, Verdict};
use kmemtrace_abi::text::wrap::wrapped;

use crate::advice;

/// Width of the text, in columns.
const WIDTH: usize = 96;

/// Verdict on a file, as a word.
pub(crate) fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Complete => "ok",
        Verdict::Lossy => "lossy",
        Verdict::Truncated => "truncated",
        Verdict::Corrupt => "corrupt",
    }
}

/// Prints title, meaning, effect on the verdict, and remedy of a code.
pub(crate) fn print(code: Code, out: &mut Vec<u8>) {
    let effect = match code.verdict() {
        Verdict::Complete => "a file with it is still ok".to_owned(),
        verdict => format!(
            "a file with it is {}{}",
            verdict_name(verdict),
            if verdict < Verdict::Corrupt { " or worse" } else { "" }
        ),
    };
    let mut text = format!("{code}  {}\n{}: {effect}\n\n", code.title(), code.severity().name());
    text += &wrapped(code.explanation(), WIDTH, 0);
    if let Some(remedy) = advice::remedy(code) {
        text += &format!("\nWhat to do:\n{}", wrapped(remedy, WIDTH, 0));
    }
    // Writing to memory cannot fail.
    let _ = out.write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_explains_itself_on_narrow_lines() {
        for &code in Code::ALL {
            let mut out = Vec::new();
            print(code, &mut out);
            let text = String::from_utf8(out).unwrap();
            assert!(text.starts_with(&format!("{code}  {}", code.title())));
            assert!(text.lines().all(|l| l.len() <= WIDTH) && text.lines().count() >= 4, "{text}");
        }
    }
}
