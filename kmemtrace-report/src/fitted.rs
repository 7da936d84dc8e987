//! Number of rows that a terminal has room for.

use std::io::{self, IsTerminal};

use crate::args::Format;
use crate::cli::Request;
use crate::terminal::screen::{self, Screen};

/// Rows of a table on a terminal that does not tell its height.
const ROWS_ON_TERMINAL: usize = 20;
/// Call-sites behind each part of memory in a table.
const SITES_OF_PART: usize = 3;
/// Children of each node of a tree on a terminal.
const CHILDREN_ON_TERMINAL: usize = 8;
/// Rows that a table has, however small the screen is.
const LEAST_ROWS: usize = 3;
/// Children of each node of a tree.
const LEAST_CHILDREN: usize = 1;
/// Views whose tables have limits of their own, or that scripts read.
const NOT_FITTED: [&str; 3] = ["summary", "balance", "account"];

/// Limit of rows: that of the command line, else that of a terminal whose height is not known.
pub(crate) fn top(request: &Request) -> Option<usize> {
    let args = &request.args;
    let on_terminal = args.output.is_none() && io::stdout().is_terminal();
    let is_table = request.format() == Format::Table;
    if request.view.name == "balance" {
        return args.top.or(is_table.then_some(SITES_OF_PART));
    }
    let usual = if request.view.name == "tree" { CHILDREN_ON_TERMINAL } else { ROWS_ON_TERMINAL };
    args.top.or((is_table && on_terminal).then_some(usual))
}

/// Limit of rows: that of the command line, else as many as the screen has room for. `write` prints the view with so many rows.
pub(crate) fn rows(
    request: &Request,
    screen: &Screen,
    write: impl Fn(Option<usize>, &mut Vec<u8>) -> anyhow::Result<()>,
) -> anyhow::Result<Option<usize>> {
    let usual = top(request);
    let is_fitted =
        request.args.top.is_none() && request.format() == Format::Table && !NOT_FITTED.contains(&request.view.name);
    let (true, Some(height), Some(width)) = (is_fitted, screen.height, screen.width) else { return Ok(usual) };
    // The shell's prompt takes the last line.
    let room = height.saturating_sub(1);
    let lines = |rows: usize| -> anyhow::Result<usize> {
        let mut text = Vec::new();
        write(Some(rows), &mut text)?;
        Ok(screen::lines_of(&text, width))
    };
    let least = if request.view.name == "tree" { LEAST_CHILDREN } else { LEAST_ROWS };
    let used = lines(least)?;
    let (mut fits, mut above) = (least, least + room.saturating_sub(used) + 1);
    if above > least + 1 && lines(above - 1)? <= room {
        return Ok(Some(above - 1));
    }
    while fits + 1 < above {
        let middle = fits.midpoint(above);
        if lines(middle)? <= room {
            fits = middle;
        } else {
            above = middle;
        }
    }
    Ok(Some(fits))
}
