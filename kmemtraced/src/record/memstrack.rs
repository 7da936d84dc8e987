//! The command line of memstrack, in words of our own.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::memstrack::{Layout, Report};
use rustix::fs::{OFlags, fcntl_setfl};

use crate::args::{Args, is_of_memstrack};
use crate::choices::StackWhen;
use crate::fs::held_dir::random_digits;

/// Text that the kernel makes of page_owner.
const PAGE_OWNER: &str = "/sys/kernel/debug/page_owner";
/// Report that is written where none is named.
const REPORT: &str = "module_summary";

/// Replaces options of memstrack by ours; returns the line that names them, where there are such options.
pub(crate) fn translate(args: &mut Args) -> anyhow::Result<Option<String>> {
    let asked = &args.memstrack;
    if asked.backend.as_deref() == Some("pageowner") || asked.pageowner_file.is_some() {
        let file = asked.pageowner_file.as_deref().unwrap_or(Path::new(PAGE_OWNER));
        bail!("--backend pageowner: the report reads such texts: kmemtrace-report top {}", shown(file));
    }
    let has_report = args.report.iter().any(|report| is_of_memstrack(report));
    let asks_else = asked.throttle.is_some() || asked.buf_size.is_some() || asked.backend.is_some();
    if !asked.notui && !has_report && !asks_else {
        return Ok(None);
    }
    if (asked.notui || has_report) && args.relay.is_none() && !args.boot {
        args.events.get_or_insert_with(|| vec!["page".to_owned()]);
        args.stack.get_or_insert(StackWhen::Alloc);
    }
    if let Some(mib) = asked.buf_size {
        args.buffer_size = Some(u64::from(mib) << 20);
    }
    if asked.notui {
        args.memstrack.report_file = args.output.take();
        args.output = Some(std::env::temp_dir().join(format!("kmemtraced-{}", random_digits()?)));
        if args.report.is_empty() {
            args.report.push(REPORT.to_owned());
        }
    }
    Ok(Some(line(args)))
}

/// Command lines of this project for the same.
fn line(args: &Args) -> String {
    let mut line = "as memstrack: kmemtraced".to_owned();
    if let Some(events) = &args.events {
        line += &format!(" -e {}", escape(events.join(",").as_bytes()));
    }
    line += match &args.stack {
        None => "",
        Some(StackWhen::Alloc) => " --stack",
        Some(StackWhen::All) => " --stack=all",
        Some(StackWhen::Filter(_)) => " --stack=FILTER",
    };
    if let Some(mib) = args.memstrack.buf_size {
        line += &format!(" -b {mib}M");
    }
    let dir = args.output.as_deref().filter(|_| !args.memstrack.notui).map_or("DIR".to_owned(), shown);
    line += &format!(" -o {dir}");
    for words in reports(args) {
        line += &format!(", then kmemtrace-report {} {dir}", words.join(" "));
    }
    if let Some(file) = &args.memstrack.report_file {
        line += &format!(" >{}", shown(file));
    }
    let throttle = args.memstrack.throttle;
    let asked = args.report.iter().filter_map(|report| Report::parse(&throttled(report, throttle)).ok());
    let views: Vec<String> = asked.map(|report| format!("kmemtrace-report {} {dir}", view(&report))).collect();
    if !views.is_empty() {
        line += &format!("; views of its own for the same: {}", views.join(", "));
    }
    line
}

/// Words of the command lines of all reports, without the trace directory. Reports of memstrack that follow each other are printed by
/// one program, which reads the trace once for several.
pub(crate) fn reports(args: &Args) -> Vec<Vec<String>> {
    let runs = args.report.chunk_by(|one, next| is_of_memstrack(one) && is_of_memstrack(next));
    let words = |run: &[String]| match run {
        [report, ..] if is_of_memstrack(report) => {
            let limited: Vec<String> = run.iter().map(|report| throttled(report, args.memstrack.throttle)).collect();
            vec!["--memstrack".to_owned(), limited.join(",")]
        }
        views => views.to_vec(),
    };
    runs.map(words).collect()
}

/// Report with the throttle of all reports, where it has none of its own.
fn throttled(report: &str, throttle: Option<u8>) -> String {
    let has_own = Report::parse(report).is_ok_and(|report| report.throttle.is_some());
    match throttle.filter(|_| !has_own) {
        Some(percent) => format!("{report}:throttle={percent}"),
        None => report.to_owned(),
    }
}

/// View of this project that answers a report of memstrack, with its parameters.
fn view(report: &Report) -> String {
    let (view, is_tree) = match report.layout {
        Layout::ModuleSummary => ("modules", false),
        Layout::ModuleTop => ("tree --by module,stack", true),
        Layout::TaskSummary => ("tasks", false),
        Layout::TaskTop => ("tree --by task,stack", true),
        Layout::TaskTopJson => ("tree --by task,stack --format json", true),
        Layout::ProcSlabStatic => ("caches", false),
    };
    let mut line = view.to_owned();
    if report.by_peak && report.layout != Layout::ProcSlabStatic {
        line += " --sort peak";
    }
    if let Some(rows) = report.top.filter(|rows| *rows > 0) {
        line += &format!(" -n {rows}");
    }
    if let Some(percent) = report.throttle.filter(|percent| is_tree && *percent > 0) {
        line += &format!(" --throttle {percent}");
    }
    line
}

/// The file of the reports, where there is one, made before the recording: the reports are all that stays of it.
pub(crate) fn report_file(args: &Args) -> anyhow::Result<Option<File>> {
    let Some(path) = args.memstrack.report_file.as_deref() else { return Ok(None) };
    let file =
        make(path).with_context(|| format!("{}: cannot be made: name another file with --output", shown(path)))?;
    Ok(Some(file))
}

/// Makes or empties a file. A FIFO without a reader is refused: it would hold up the recorder.
fn make(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(path)?;
    // Reports wait for their reader.
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// True if only the reports stay of the recording.
pub(crate) fn is_private(args: &Args) -> bool {
    args.memstrack.notui
}

fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn translated(line: &str) -> (Args, anyhow::Result<Option<String>>) {
        let mut args = Args::try_parse_from(line.split(' ')).unwrap();
        let said = translate(&mut args);
        (args, said)
    }

    #[test]
    fn options_of_memstrack_are_told_in_our_words() {
        let said = |line: &str| translated(line).1.unwrap();
        assert_eq!(said("kmemtraced -e page"), None);
        assert_eq!(
            said("kmemtraced --notui --report module_summary,task_top:top=5 --throttle 80 --output /tmp/F").unwrap(),
            "as memstrack: kmemtraced -e page --stack -o DIR, then kmemtrace-report --memstrack \
             module_summary:throttle=80,task_top:top=5:throttle=80 DIR >/tmp/F; views of its own for the same: \
             kmemtrace-report modules DIR, kmemtrace-report tree --by task,stack -n 5 --throttle 80 DIR"
        );
        assert_eq!(said("kmemtraced --backend perf --buf-size 8").unwrap(), "as memstrack: kmemtraced -b 8M -o DIR");
        assert_eq!(
            said("kmemtraced --report sites,module_top -e all --stack=all -o x").unwrap(),
            "as memstrack: kmemtraced -e all --stack=all -o x, then kmemtrace-report sites x, then kmemtrace-report --memstrack \
             module_top x; views of its own for the same: kmemtrace-report tree --by module,stack x"
        );
        let (args, _) = translated("kmemtraced --notui --output F --buf-size 2");
        assert_eq!((args.report, args.buffer_size), (vec![REPORT.to_owned()], Some(2 << 20)));
        assert_eq!(args.memstrack.report_file.as_deref(), Some(Path::new("F")));
        assert!(args.output.is_some_and(|dir| dir.starts_with(std::env::temp_dir())));
    }

    #[test]
    fn a_page_owner_text_is_an_input_of_the_report() {
        for line in ["kmemtraced --backend pageowner --pageowner-file /x", "kmemtraced --pageowner-file /x"] {
            let error = translated(line).1.unwrap_err().to_string();
            assert!(error.contains("kmemtrace-report top /x"), "{error}");
        }
        let error = translated("kmemtraced --backend pageowner").1.unwrap_err().to_string();
        assert!(error.contains("kmemtrace-report top /sys/kernel/debug/page_owner"), "{error}");
    }
}
