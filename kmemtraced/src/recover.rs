//! `kmemtraced recover`: undoes the changes of a killed recorder in the kernel.

use std::io::{self, Write};

use crate::args::Args;
use crate::source::{boot, instance, probes, relay, tracefs};

/// Undoes the changes of killed recorders, and lists them.
pub(crate) fn recover(args: &Args) -> anyhow::Result<u8> {
    let tracefs = tracefs::find(args.tracefs.as_deref())?;
    let (mut removed, foreign) = instance::recover(&tracefs, &args.instance)?;
    removed.extend(boot::recover(&tracefs));
    let groups = probes::remove_leftovers(&tracefs)?;
    removed.extend(groups.iter().map(|group| format!("the probe events of {group}")));
    removed.extend(relay::recover()?);
    let _ = match removed.is_empty() {
        true => writeln!(io::stdout(), "nothing was left behind"),
        false => writeln!(io::stdout(), "removed: {}", removed.join(", ")),
    };
    if let Some(path) = foreign {
        let _ = writeln!(io::stdout(), "left: {} was not made by a recorder: remove it by hand", path.display());
    }
    Ok(0)
}
