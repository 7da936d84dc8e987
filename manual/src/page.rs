//! One man page of a command.

use clap::Command;
use clap_mangen::Man;

/// Page of a command; `see_also` are names of other pages.
pub(crate) fn page(name: &str, mut command: Command, see_also: &[String]) -> Vec<u8> {
    let usage = command.render_usage().to_string();
    let end = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let has_views = command.get_subcommands().next().is_some();
    // A page has all that the long help has; some options are hidden in the short one.
    let title = command.clone().display_name(name.to_owned()).mut_args(|arg| arg.hide_short_help(false));
    let man = Man::new(title);
    // The date stays empty: a page depends on its sources alone.
    let mut text = format!(".TH \"{}\" \"1\" \"\" \"kmemtrace {version}\" \"kmemtrace\"\n", escaped(name)).into_bytes();
    // Writing to memory cannot fail.
    let _ = man.render_name_section(&mut text);
    lines(&mut text, "SYNOPSIS", usage.trim_start_matches("Usage:").lines().map(str::trim));
    let _ = man.render_description_section(&mut text);
    let _ = man.render_options_section(&mut text);
    if has_views {
        lines(&mut text, "COMMANDS", commands(&command).iter().map(String::as_str));
    }
    for block in end.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let (heading, rest) = block.split_once(':').unwrap_or(("NOTES", block));
        let heading = heading.trim().to_uppercase();
        if rest.starts_with('\n') {
            lines(&mut text, &heading, rest.lines());
        } else {
            text.extend(format!(".SH \"{heading}\"\n{}\n", escaped(rest.trim())).into_bytes());
        }
    }
    let see_also: Vec<String> = see_also.iter().map(|name| format!("\\fB{}\\fR(1)", escaped(name))).collect();
    text.extend(format!(".SH \"SEE ALSO\"\n{}\n", see_also.join(",\n")).into_bytes());
    text
}

/// Lines `name   meaning` of the commands below one.
fn commands(command: &Command) -> Vec<String> {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    let line = |below: &Command| {
        let about = below.get_about().map(ToString::to_string).unwrap_or_default();
        format!("{:<12} {about}", below.get_name())
    };
    shown.map(line).collect()
}

/// Section of lines that are printed as they are.
fn lines<'a>(text: &mut Vec<u8>, heading: &str, lines: impl Iterator<Item = &'a str>) {
    text.extend(format!(".SH \"{heading}\"\n.nf\n").into_bytes());
    for line in lines.map(str::trim_end).filter(|line| !line.is_empty()) {
        let line = escaped(line.strip_prefix("  ").unwrap_or(line));
        // A line that begins with one of these would be a request to the formatter.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        text.extend(format!("{guard}{line}\n").into_bytes());
    }
    text.extend(b".fi\n");
}

/// Text with the formatter's own characters written out.
fn escaped(line: &str) -> String {
    line.replace('\\', "\\e").replace('-', "\\-")
}
