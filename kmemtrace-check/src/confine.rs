//! The sandbox of the check: what its command line lets it open.

use kmemtrace_abi::open::regular;
use kmemtrace_sandbox::{Mode, Role, Sandbox};

use crate::input;
use crate::options::Options;

/// Closes the sandbox around the inputs. Returns lines about it, where they are asked for.
///
/// # Errors
/// A line for the user.
pub(crate) fn close(options: &Options) -> Result<Vec<String>, String> {
    if options.sandbox == Mode::Off {
        return Ok(Vec::new());
    }
    let mut sandbox = Sandbox::of_reader(Role::Reader);
    // Without any input the search for one tells why.
    input::or_default(&options.paths).unwrap_or_default().iter().for_each(|path| sandbox.input(path));
    if let Some(formats) = &options.event_formats {
        sandbox.event_formats(formats);
    }
    let described = sandbox.described();
    let mode = options.sandbox.name();
    let missing = sandbox
        .close(options.sandbox)
        .map_err(|lack| format!("--sandbox {mode}: {lack}; --sandbox off does without"))?;
    regular::tell_of_sandbox();
    let missing = missing.iter().map(|lack| format!("sandbox: left out: {lack}"));
    Ok(if options.verbose { described.into_iter().chain(missing).collect() } else { Vec::new() })
}
