//! Texts of help.

use std::fmt::Write as _;

use crate::words::{OWN, TWINS, WANTED, WORDS};

/// Meaning of the program in one line.
pub(crate) const ABOUT: &str = "Records who allocates kernel memory, and reports who leaks, holds or wastes it";

/// Exit statuses, for help and man page.
pub(crate) const EXIT_STATUS: &str = "Exit status: that of the program that runs; 2 if there is none";

/// What people want, with the command for each: the answer to the command without a word.
pub(crate) fn wanted() -> String {
    let width = WANTED.iter().map(|(wish, _)| wish.len()).max().unwrap_or_default();
    let mut text = format!("{ABOUT}.\n\n");
    for (wish, line) in WANTED {
        let _ = writeln!(text, "  {wish:width$}   {line}");
    }
    text + "\nRecording requires root. Words: kmemtrace help; views: kmemtrace help report\n"
}

/// All words.
pub(crate) fn all() -> String {
    let mut text = format!("{ABOUT}\n\nUsage: kmemtrace [WORD] [OPTIONS]\n\nWords:\n");
    let words = WORDS.iter().map(|word| (word.name, word.meaning)).chain(OWN);
    for (name, meaning) in words.filter(|(_, meaning)| !meaning.is_empty()) {
        let _ = writeln!(text, "  {name:<12} {meaning}");
    }
    let _ = writeln!(text, "  {:<12} Print a view: leaks, sites, live, ... (kmemtrace help report)", "VIEW");
    let _ = writeln!(text, "  {:<12} Print the summary of a recording, or of a file of another program", "DIR|FILE");
    text += "\nOptions:\n  -h, --help     Print help\n  -V, --version  Print version\n";
    let _ = write!(text, "\n{EXIT_STATUS}\n");
    text
}

/// Lines of perf, with those for the same here.
pub(crate) fn of_perf() -> String {
    let width = TWINS.iter().map(|(perf, _)| perf.len()).max().unwrap_or_default();
    let mut text = String::from("What people type at perf, and the same here:\n\n");
    for (perf, ours) in TWINS {
        let _ = writeln!(text, "  {perf:width$}   {ours}");
    }
    text + "\nA perf.data is read as it is: kmemtrace perf.data\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_terminal() {
        for text in [wanted(), all(), of_perf()] {
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }
}
