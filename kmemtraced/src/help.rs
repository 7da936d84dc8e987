//! Help on a terminal: what is longer than the screen goes through a pager.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::builder::StyledStr;
use kmemtrace_sandbox::pager::Pager;

use crate::args::NOT_STARTED;

/// Prints a text that was asked for. Nothing of the recorder is open yet.
pub(crate) fn print(help: &clap::Error) -> ExitCode {
    let text = help.render();
    let is_short_help = env::args_os().any(|word| word == "-h");
    match (!is_short_help && is_long(&text)).then(Pager::start).flatten() {
        Some(pager) => paged(pager, &text),
        None => match help.print().and_then(|()| io::stdout().flush()) {
            // The reader of a pipe may have seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let _ = writeln!(io::stderr(), "kmemtraced: standard output: cannot be written: {error}");
                return ExitCode::from(NOT_STARTED);
            }
            _ => {}
        },
    }
    ExitCode::SUCCESS
}

fn paged(mut pager: Pager, text: &StyledStr) {
    // Ctrl-C is the pager's; this program ends with it.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::new(AtomicBool::new(false)));
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let has_colour = !is_set("NO_COLOR") && env::var_os("TERM").is_none_or(|name| name != "dumb");
    // A pager that is left early has shown what was wanted.
    let _ = if has_colour { write!(pager, "{}", text.ansi()) } else { write!(pager, "{text}") };
    let _ = pager.end();
}

/// True for a text that does not fit the terminal; the shell's prompt takes the last line.
fn is_long(text: &StyledStr) -> bool {
    let stdout = io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok().filter(|size| stdout.is_terminal() && size.ws_row > 0);
    let columns = size.map_or(1, |size| usize::from(size.ws_col).max(1));
    let lines: usize = text.to_string().lines().map(|line| line.chars().count().div_ceil(columns).max(1)).sum();
    size.is_some_and(|size| lines >= usize::from(size.ws_row))
}
