//! `kmemtraced recover`: undoes the changes of a killed recorder in the kernel.

use std::io::{self, Write};

use anyhow::Context;

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
    let mut text = String::new();
    if !undone.is_empty() {
        text += &format!("removed: {}\n", undone.join(", "));
    }
    if let Some(path) = &foreign {
        text += &format!("left: {} was not made by a recorder: remove it by hand\n", path.display());
    }
    if text.is_empty() && failed.is_empty() {
        text += "nothing was left behind\n";
    }
    for error in &failed {
        messages::say(format!("kmemtraced: {error:#}"));
    }
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("standard output: cannot be written")?;
    Ok(if failed.is_empty() { 0 } else { NOT_STARTED })
}
