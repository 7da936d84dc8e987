//! Pages and commands of the three programs.

use clap::{Command, CommandFactory};

use crate::check_options::Options;
use crate::cli::commands;
use crate::page::page;
use crate::recorder_args;
use crate::views::VIEWS;

const RECORDER: &str = "kmemtraced";
const CHECK: &str = "kmemtrace-check";

/// Commands with completions, by the names of the programs.
pub(crate) fn completed() -> [(&'static str, Command); 3] {
    [(RECORDER, recorder()), (CHECK, check()), (commands::PROGRAM, commands::completed())]
}

/// Man pages by name: one for each program and each view.
pub(crate) fn pages() -> Vec<(String, Vec<u8>)> {
    let views: Vec<String> = VIEWS.iter().map(|view| format!("{}-{}", commands::PROGRAM, view.name)).collect();
    let programs = [(RECORDER, recorder()), (CHECK, check()), (commands::PROGRAM, commands::program())];
    let others =
        |name: &str| programs.iter().map(|(other, _)| (*other).to_owned()).filter(|other| other != name).collect();
    let mut pages: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, command) in &programs {
        let mut see_also: Vec<String> = others(name);
        if *name == RECORDER {
            see_also.extend(VERBS.map(|verb| format!("{RECORDER}-{verb}")));
        }
        if *name == commands::PROGRAM {
            see_also.extend(views.clone());
        }
        pages.push(((*name).to_owned(), page(name, command.clone(), &see_also)));
    }
    let mut recorder = recorder();
    // The options that all words have.
    recorder.build();
    for verb in VERBS {
        let name = format!("{RECORDER}-{verb}");
        if let Some(command) = recorder.find_subcommand(verb) {
            let command = command.clone().bin_name(format!("{RECORDER} {verb}"));
            pages.push((name.clone(), page(&name, command, &[RECORDER.to_owned()])));
        }
    }
    for (view, name) in VIEWS.iter().zip(&views) {
        pages.push((name.clone(), page(name, commands::of_view(view), &[commands::PROGRAM.to_owned()])));
    }
    pages
}

fn recorder() -> Command {
    recorder_args::program().name(RECORDER).bin_name(RECORDER)
}

/// Words of the recorder with pages of their own.
const VERBS: [&str; 4] = ["top", "watch", "recover", "probe"];

fn check() -> Command {
    Options::command().name(CHECK).bin_name(CHECK)
}
