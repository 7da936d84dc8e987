//! Scripts of completions, as clap_complete 4.6 writes them, and mended where it does not know these command lines.

use std::fmt::Write as _;

use clap::Command;
use clap_complete::Shell;

/// Completions of a program for a shell.
pub(crate) fn script(shell: Shell, mut command: Command, program: &str) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, program, &mut script);
    let script = String::from_utf8_lossy(&script);
    // The script for bash names a function of a subcommand in two ways if the program's name has a hyphen (clap_complete 4.6).
    let [wrong, right] = ["__subcmd__", "__"].map(|hyphen| format!("{}__subcmd__", program.replace('-', hyphen)));
    let script = script.replace(&wrong, &right);
    match shell {
        Shell::Bash => with_lists(&script),
        Shell::Zsh => with_word_first(&script, program).unwrap_or(script),
        _ => script,
    }
}

/// Options that take a list of words, as they stand in a script.
const LISTS: [&str; 6] = ["--by)", "--sort)", "-s)", "--cull)", "--class)", "--fail-on)"];

/// Script for bash that completes each word of a list: `--by comm,s`.
fn with_lists(script: &str) -> String {
    const WHOLE: &str = r#" -- "${cur}"))"#;
    const LAST: &str = r#" -- "${cur##*,}"))"#;
    let mut is_list = false;
    let mut out = String::with_capacity(script.len());
    for line in script.lines() {
        let word = line.trim();
        if word.ends_with(')') && word.starts_with('-') {
            is_list = LISTS.contains(&word);
        } else if word.starts_with(r#"COMPREPLY=($(compgen -W "${opts}""#) {
            is_list = false;
        }
        match line.strip_suffix(WHOLE).filter(|_| is_list) {
            Some(words) => {
                let words = words.replace("compgen -W", r#"compgen -P "${cur%"${cur##*,}"}" -W"#);
                let _ = writeln!(out, "{words}{LAST}");
            }
            None => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

/// Script for zsh in which the word of a subcommand stands first. The generator expects the other words of the program before it, so that
/// options of a subcommand do not complete. `None` if the script has another shape.
fn with_word_first(script: &str, program: &str) -> Option<String> {
    const BEGIN: &str = "    _arguments \"${_arguments_options[@]}\" : \\\n";
    const END: &str = "        esac\n    ;;\nesac";
    let (head, rest) = script.split_once(BEGIN)?;
    let (options, rest) = rest.split_once("\n'::")?;
    let (words, rest) = rest.split_once('\n')?;
    let (subcommands, tail) = rest.rsplit_once(END)?;
    let subcommands = subcommands.replace("$line[2]", "$line[1]").replacen(
        &format!("\":: :_{program}_commands\""),
        &format!("\":: :{{_{program}_commands; _files}}\""),
        1,
    );
    let begin = BEGIN.trim_start();
    // Any other first word is a trace: the options of the program complete behind it, too.
    Some(format!(
        "{head}{BEGIN}{options}\n{subcommands}            (*)\n{begin}{options}\n'*::{words}\n&& ret=0\n;;\n{END}{tail}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::commands::{PROGRAM, completed};

    #[test]
    fn zsh_expects_a_view_first() {
        let script = script(Shell::Zsh, completed(), PROGRAM);
        assert!(script.contains("case $line[1] in\n            (summary)"), "the generator's text has changed");
        assert!(!script.contains("$line[2]") && script.contains("            (*)\n_arguments"));
        assert_eq!(with_word_first("other", PROGRAM), None);
    }
}
