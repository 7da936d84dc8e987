//! `kmemtrace-check`: is a recording whole, what is missing, and where?

mod checks;
mod render;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use kmemtrace_abi::escape::escape;
use kmemtrace_abi::fault::{Code, Verdict};
use kmemtrace_abi::trace::OpenError;

/// Checks trace files: order, loss, cuts and damage.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit status: 0 every file is whole and nothing was lost, 1 lossy or truncated, 2 usage or unreadable, \
                  3 corrupt or no trace"
)]
struct Args {
    /// Trace directories or files [default: ./kmemtrace.data, else ./cpu*.out]
    #[arg(value_name = "DIR|FILE")]
    inputs: Vec<PathBuf>,
    /// Lossy and truncated count as corrupt
    #[arg(long)]
    strict: bool,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Findings shown a file
    #[arg(long, value_name = "N", default_value = "20")]
    limit: usize,
    /// Say what a finding means and what to do
    #[arg(long, value_name = "CODE", value_parser = code)]
    explain: Option<Code>,
    /// Print nothing where everything is well
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
    Tsv,
}

fn code(text: &str) -> Result<Code, String> {
    let number = text.trim_start_matches(['K', 'k']).parse().ok();
    number.and_then(Code::from_number).ok_or_else(|| {
        let known: Vec<String> = Code::ALL.iter().map(ToString::to_string).collect();
        format!("there is no such finding; there are {}", known.join(" "))
    })
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = match args.explain {
        Some(code) => {
            writeln!(out, "{code} ({}): {}\n\n{}", code.severity().name(), code.title(), code.explanation()).map(|()| 0)
        }
        None => run(&args, &mut out),
    };
    match printed.and_then(|status| out.flush().map(|()| status)) {
        Ok(status) => ExitCode::from(status),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "kmemtrace-check: cannot write: {error}");
            ExitCode::from(2)
        }
    }
}

/// `./kmemtrace.data`, else the per-CPU files here.
fn default_inputs() -> Vec<PathBuf> {
    let data = Path::new("kmemtrace.data");
    let here = Path::new(".");
    let any = std::fs::read_dir(here).into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|n| n.starts_with("cpu") && n.ends_with(".out"))
    });
    vec![if !data.exists() && any { here.to_owned() } else { data.to_owned() }]
}

fn run(args: &Args, out: &mut dyn Write) -> io::Result<u8> {
    let inputs = if args.inputs.is_empty() { default_inputs() } else { args.inputs.clone() };
    let mut status = 0;
    let mut all = Vec::new();
    for input in &inputs {
        match checks::check(input) {
            Ok(checked) => all.push(checked),
            Err(error) => {
                let text = error.to_string();
                let _ = writeln!(io::stderr(), "kmemtrace-check: {}", escape(text.as_bytes()));
                status = status.max(if OpenError::is_no_trace(&error) { 3 } else { 2 });
            }
        }
    }
    let worst = all.iter().flat_map(|c| &c.files).map(|f| f.verdict).max().unwrap_or_default();
    status = status.max(match worst {
        Verdict::Complete => 0,
        Verdict::Lossy | Verdict::Truncated if !args.strict => 1,
        _ => 3,
    });
    if all.is_empty() || (args.quiet && status == 0) {
        return Ok(status);
    }
    match args.format {
        Format::Table => render::table(&all, args.limit, out)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &render::json(&all)).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Format::Csv => render::rows(&all, ',', out)?,
        Format::Tsv => render::rows(&all, '\t', out)?,
    }
    Ok(status)
}
