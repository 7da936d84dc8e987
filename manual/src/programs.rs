//! Pages and commands of the programs.

use clap::{Command, CommandFactory};

use crate::check_options::Options;
use crate::cli::commands;
use crate::format_page;
use crate::help;
use crate::page::{Page, Reference, page};
use crate::recorder_args;
use crate::views::VIEWS;
use crate::words::{CHECK, OWN, RECORDER, TWINS, WANTED, WORDS};

/// The command that runs the programs.
pub(crate) const COMMAND: &str = "kmemtrace";
/// Section of the recorder's pages: it is a program for root.
const OF_ROOT: u8 = 8;
/// Words of the recorder with pages of their own.
const VERBS: [&str; 4] = ["top", "watch", "recover", "doctor"];

/// Commands with completions made of their options, by the names of the programs.
pub(crate) fn completed() -> [(&'static str, Command); 3] {
    [(RECORDER, recorder()), (CHECK, check()), (commands::PROGRAM, commands::completed())]
}

/// Programs and words of the recorder, by their names on the command line.
pub(crate) fn all() -> Vec<(String, Command)> {
    let mut built = recorder();
    // The options that all words have.
    built.build();
    let words =
        VERBS.iter().filter_map(|verb| Some((format!("{RECORDER} {verb}"), built.find_subcommand(verb)?.clone())));
    let words: Vec<(String, Command)> = words.map(|(name, command)| (name.clone(), command.bin_name(name))).collect();
    let programs =
        [(COMMAND, command()), (RECORDER, recorder()), (CHECK, check()), (commands::PROGRAM, commands::program())];
    programs.into_iter().map(|(name, command)| (name.to_owned(), command)).chain(words).collect()
}

/// Man pages: one for each program, each word of the recorder, each view, and the format.
pub(crate) fn pages() -> Vec<Page> {
    let views: Vec<Reference> = VIEWS.iter().map(|view| (format!("{}-{}", commands::PROGRAM, view.name), 1)).collect();
    let verbs = VERBS.map(|verb| (format!("{RECORDER}-{verb}"), OF_ROOT));
    let programs = [
        ((COMMAND.to_owned(), 1), command()),
        ((RECORDER.to_owned(), OF_ROOT), recorder()),
        ((CHECK.to_owned(), 1), check()),
        ((commands::PROGRAM.to_owned(), 1), commands::program()),
    ];
    let references: Vec<Reference> = programs.iter().map(|(reference, _)| reference.clone()).collect();
    let mut pages = Vec::new();
    for (reference, command) in programs {
        let mut others: Vec<Reference> = references.iter().filter(|other| **other != reference).cloned().collect();
        match &*reference.0 {
            RECORDER => others.extend(verbs.clone()),
            commands::PROGRAM => others.extend(views.clone()),
            _ => {}
        }
        others.push(format_page::reference());
        pages.push(page(reference, command, &others));
    }
    let mut recorder = recorder();
    // The options that all words have.
    recorder.build();
    for (verb, reference) in VERBS.iter().zip(verbs) {
        if let Some(command) = recorder.find_subcommand(verb) {
            let command = command.clone().bin_name(format!("{RECORDER} {verb}"));
            pages.push(page(reference, command, &[(RECORDER.to_owned(), OF_ROOT)]));
        }
    }
    for (view, reference) in VIEWS.iter().zip(views) {
        pages.push(page(reference, commands::of_view(view), &[(commands::PROGRAM.to_owned(), 1)]));
    }
    pages.push(format_page::page(&references));
    pages
}

/// The command that runs the programs, as far as a page shows it.
fn command() -> Command {
    let words = WORDS.iter().map(|word| (word.name, word.meaning)).chain(OWN);
    let words = words.filter(|(_, meaning)| !meaning.is_empty());
    let examples: String = WANTED.iter().map(|(wish, line)| format!("  {line}\n      {wish}\n")).collect();
    let twins: String = TWINS.iter().map(|(perf, line)| format!("  {perf}\n      {line}\n")).collect();
    Command::new(COMMAND)
        .about(help::ABOUT)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .override_usage(format!("{COMMAND} [WORD] [OPTIONS]\n{COMMAND} VIEW [OPTIONS] [DIR|FILE]..."))
        .subcommands(words.map(|(name, meaning)| Command::new(name).about(meaning)))
        .after_help(format!("Examples:\n{examples}\nFor users of perf:\n{twins}\n{}", help::EXIT_STATUS))
}

fn recorder() -> Command {
    recorder_args::program().name(RECORDER).bin_name(RECORDER)
}

fn check() -> Command {
    Options::command().name(CHECK).bin_name(CHECK)
}
