//! Pages of the reference, in Markdown, made of the tables that the programs are made of.

use std::fmt::Write as _;

use clap::Command;
use kmemtrace::{Figure, FigureUnit, GroupKey};
use kmemtrace_abi::fault::Code;

use crate::cli::commands;
use crate::views::VIEWS;

/// Pages by the names of their files.
pub(crate) fn pages(programs: &[(String, Command)]) -> Vec<(String, String)> {
    let views = VIEWS.iter().map(|view| (format!("{} {}", commands::PROGRAM, view.name), commands::of_view(view)));
    vec![
        ("commands.md".to_owned(), helps("Commands", programs.iter().cloned())),
        ("views.md".to_owned(), helps("Views", views)),
        ("figures.md".to_owned(), figures()),
        ("keys.md".to_owned(), keys()),
        ("findings.md".to_owned(), findings()),
    ]
}

/// The long help of each command.
fn helps(title: &str, commands: impl Iterator<Item = (String, Command)>) -> String {
    let mut text = format!("# {title}\n");
    for (name, mut command) in commands {
        let help = command.render_long_help().to_string();
        let _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
    }
    text
}

/// Figures of rows.
fn figures() -> String {
    let mut text = "# Figures\n\nMembers of JSON, columns of CSV and Parquet, and words of `--sort`.\n\n\
                    | member | unit | meaning | column | `--sort` |\n|---|---|---|---|---|\n"
        .to_owned();
    for figure in Figure::ALL {
        let entry = figure.entry();
        let unit = match entry.unit {
            FigureUnit::Bytes => "bytes",
            FigureUnit::Count => "",
        };
        let sort: Vec<String> = entry.sort.iter().map(|word| format!("`{word}`")).collect();
        let (member, meaning, title) = (entry.member, entry.meaning, entry.title);
        let _ = writeln!(text, "| `{member}` | {unit} | {meaning} | {title} | {} |", sort.join(", "));
    }
    text
}

/// Keys that group rows.
fn keys() -> String {
    let mut text = "# Keys\n\nWords of `--by`, each with its columns of tables.\n\n| key | rows are made of | columns |\n|---|---|---|\n"
        .to_owned();
    for key in GroupKey::ALL {
        let entry = key.entry();
        let columns: Vec<&str> = entry.columns.iter().map(|column| column.title).collect();
        let _ = writeln!(text, "| `{}` | {} | {} |", entry.word, entry.meaning, columns.join(", "));
    }
    text
}

/// Codes of findings about files.
fn findings() -> String {
    let mut text = "# Findings about files\n\nCodes that `kmemtrace-check` prints; `kmemtrace-check --explain CODE` prints the text.\n".to_owned();
    for code in Code::ALL {
        let _ = write!(text, "\n## {code}: {}\n\n{}, {}\n", code.title(), code.severity().name(), code.explanation());
    }
    text
}
