//! The sandbox of the report: what its command line lets it open.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use kmemtrace_sandbox::{Mode, Role, Sandbox};

use crate::cli::Request;
use crate::sources::{self, Source};
use crate::terminal::messages::say;
#[cfg(feature = "top")]
use crate::top;
use crate::views::Run;

/// Set by the first call: a sandbox holds for all that comes after.
static CLOSED: OnceLock<()> = OnceLock::new();

/// Closes the sandbox around all that a view opens. A program that was started before, such as a pager, stays outside.
pub(crate) fn close(request: &Request) -> anyhow::Result<()> {
    close_all(request.args.sandbox, request.args.verbose, std::iter::once(request), |_| {})
}

/// Closes the sandbox around all that several views open, and what else `add` allows.
pub(crate) fn close_all<'r>(
    mode: Mode,
    is_verbose: bool,
    requests: impl IntoIterator<Item = &'r Request>,
    add: impl FnOnce(&mut Sandbox),
) -> anyhow::Result<()> {
    if CLOSED.set(()).is_err() || mode == Mode::Off {
        return Ok(());
    }
    let requests: Vec<&Request> = requests.into_iter().collect();
    let has_screen = requests.iter().any(|request| matches!(request.view.run, Run::Top));
    let mut sandbox = if requests.iter().any(|request| request.args.viewer.is_viewer) {
        Sandbox::of_viewer()
    } else {
        let mut sandbox = Sandbox::of_reader(if has_screen { Role::Screen } else { Role::Reader });
        requests.iter().for_each(|request| allow(&mut sandbox, request));
        sandbox
    };
    add(&mut sandbox);
    let described = if is_verbose { sandbox.described() } else { Vec::new() };
    let missing = sandbox
        .close(mode)
        .map_err(|lack| anyhow::anyhow!("--sandbox {}: {lack}; --sandbox off does without", mode.name()))?;
    kmemtrace_abi::open::regular::tell_of_sandbox();
    if is_verbose {
        described.iter().for_each(|line| say(&kmemtrace_abi::text::escape::escape(line.as_bytes())));
        missing.iter().for_each(|lack| say(&format!("sandbox: left out: {lack}")));
    }
    Ok(())
}

/// Allows what a view opens.
fn allow(sandbox: &mut Sandbox, request: &Request) {
    let args = &request.args;
    for source in sources::of(request) {
        allow_source(sandbox, request, &source);
    }
    if let Some(output) = &args.output {
        sandbox.output(output);
    }
    // Names of threads that live.
    if args.follow || matches!(request.view.run, Run::Top) {
        sandbox.read("/proc");
    }
    #[cfg(feature = "top")]
    if matches!(request.view.run, Run::Top) {
        top::allow(sandbox, args);
    }
}

/// True for a directory that an index may stand in.
fn is_recording(input: &Path) -> bool {
    let entries = fs::read_dir(input).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.extension().is_some_and(|end| end == "out"))
}

/// Allows to read a source, and to write beside an input where the view does that.
fn allow_source(sandbox: &mut Sandbox, request: &Request, source: &Source) {
    match source {
        Source::Input(input) => {
            sandbox.input(input);
            if matches!(request.view.run, Run::Pack) {
                sandbox.write(if input.is_dir() { input } else { input.parent().unwrap_or(Path::new("")) });
            } else if !request.args.no_index && is_recording(input) {
                sandbox.write(input);
            }
        }
        Source::File(file) => sandbox.named(file),
        Source::DebugFolder(folder) => sandbox.debug_folder(folder),
        Source::Tree(tree) => sandbox.tree(tree),
        Source::EventFormats(formats) => sandbox.event_formats(formats),
        #[cfg(feature = "full")]
        Source::Settings(_) => {}
        #[cfg(feature = "full")]
        Source::SystemFolder(folder) => sandbox.read(folder),
        #[cfg(feature = "full")]
        Source::Modules(folder) => sandbox.modules(folder),
    }
}
