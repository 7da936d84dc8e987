//! One man page of a command.

use clap::Command;
use clap_mangen::Man;

/// A man page.
pub(crate) struct Page {
    pub(crate) name: String,
    /// Section of the manual.
    pub(crate) section: u8,
    /// Requests to the formatter.
    pub(crate) text: Vec<u8>,
}

/// Name and section of another page.
pub(crate) type Reference = (String, u8);

/// First line of a page.
pub(crate) fn title(name: &str, section: u8) -> String {
    // The date stays empty: a page depends on its sources alone.
    let version = env!("CARGO_PKG_VERSION");
    format!(".TH \"{}\" \"{section}\" \"\" \"kmemtrace {version}\" \"kmemtrace\"\n", escaped(name))
}

/// Last section of a page.
pub(crate) fn see_also(others: &[Reference]) -> String {
    let others: Vec<String> =
        others.iter().map(|(name, section)| format!("\\fB{}\\fR({section})", escaped(name))).collect();
    format!(".SH \"SEE ALSO\"\n{}\n", others.join(",\n"))
}

/// Page of a command.
pub(crate) fn page((name, section): Reference, mut command: Command, others: &[Reference]) -> Page {
    let usage = command.render_usage().to_string();
    let end = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string).unwrap_or_default();
    let has_views = command.get_subcommands().next().is_some();
    // A page has all that the long help has; some options are hidden in the short one.
    let man = Man::new(command.clone().display_name(name.clone()).mut_args(|arg| arg.hide_short_help(false)));
    let mut text = title(&name, section).into_bytes();
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
    text.extend(see_also(others).into_bytes());
    Page { name, section, text }
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
pub(crate) fn escaped(line: &str) -> String {
    line.replace('\\', "\\e").replace('-', "\\-")
}
