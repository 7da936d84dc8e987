//! `kmemtraced recover`: undoes the changes of a killed recorder in the kernel.

use std::io::{self, Write};

use crate::args::{Args, NOT_STARTED};
use crate::fs::state;
use crate::process::messages;
use crate::source::recovery::Recovery;
use crate::source::{boot, instance, probes, relay, tracefs};
use crate::viewer::identity;

/// Undoes the changes of killed recorders, and lists them. The status is 2 where something could not be looked at or undone.
pub(crate) fn recover(args: &Args) -> anyhow::Result<u8> {
    let tracefs = tracefs::find(args.tracefs.as_deref())?;
    let mut recovery = Recovery::default();
    instance::recover(&tracefs, &args.instance, &mut recovery);
    boot::recover(&tracefs, &mut recovery);
    match probes::remove_leftovers(&tracefs) {
        Ok(groups) => recovery.undone.extend(groups.iter().map(|group| format!("the probe events of {group}"))),
        Err(error) => recovery.add(Err(error)),
    }
    recovery.add(relay::recover());
    identity::recover();
    // The files in /run may be about instances of the usual file system. One that cannot be looked for may be there.
    if args.tracefs.is_none() {
        state::remove_leftovers(|name| tracefs.has(&format!("instances/{name}")).unwrap_or(true));
    }
    let Recovery { undone, foreign, failed } = recovery;
    let _ = match undone.is_empty() {
        true if failed.is_empty() => writeln!(io::stdout(), "nothing was left behind"),
        true => Ok(()),
        false => writeln!(io::stdout(), "removed: {}", undone.join(", ")),
    };
    if let Some(path) = foreign {
        let _ = writeln!(io::stdout(), "left: {} was not made by a recorder: remove it by hand", path.display());
    }
    for error in &failed {
        messages::say(format!("kmemtraced: {error:#}"));
    }
    Ok(if failed.is_empty() { 0 } else { NOT_STARTED })
}
