//! The sandbox of the check: what its command line lets it open.

use kmemtrace_abi::open::regular;
use kmemtrace_sandbox::{Mode, Role, Sandbox};

use crate::options::Options;
use crate::{complain, input};

/// Closes the sandbox around the inputs.
///
/// # Errors
/// A line for the user.
pub(crate) fn close(options: &Options) -> Result<(), String> {
    if options.sandbox == Mode::Off {
        return Ok(());
    }
    let mut sandbox = Sandbox::of_reader(Role::Reader);
    // Without any input the search for one tells why.
    input::or_default(&options.paths).unwrap_or_default().iter().for_each(|path| sandbox.input(path));
    if let Some(formats) = &options.event_formats {
        sandbox.event_formats(formats);
    }
    let described = if options.verbose { sandbox.described() } else { Vec::new() };
    let mode = options.sandbox.name();
    let missing = sandbox
        .close(options.sandbox)
        .map_err(|lack| format!("--sandbox {mode}: {lack}; --sandbox off does without"))?;
    regular::tell_of_sandbox();
    if options.verbose {
        described.iter().for_each(|line| complain(line));
        missing.iter().for_each(|lack| complain(&format!("sandbox: left out: {lack}")));
    }
    Ok(())
}
