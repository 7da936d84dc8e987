//! Options of a table, beyond its document.

use kmemtrace::documents::group::AllocinfoAgreement;
use kmemtrace::{SortKey, Trace};

use crate::terminal::screen::Screen;

/// Options of a table.
#[derive(Clone)]
pub(crate) struct TableOptions {
    /// Destination.
    pub(crate) screen: Screen,
    /// True for exact bytes.
    pub(crate) bytes: bool,
    /// True to print the addresses of objects.
    pub(crate) show_addresses: bool,
    /// True if the figures include the recorder's own objects.
    pub(crate) shows_own: bool,
    /// True to list the functions that the compiler put into each other.
    pub(crate) shows_inlines: bool,
    /// True to list findings that are normal, too.
    pub(crate) shows_normal: bool,
    /// True to list the rows of groups.
    pub(crate) shows_parts: bool,
    /// Limit of rows, for views whose document has all of them.
    pub(crate) top: Option<usize>,
    /// First sort key.
    pub(crate) ranked: Option<SortKey>,
    /// Filters as the user gave them: name and values.
    pub(crate) filters: Vec<(String, String)>,
    /// Allocations that the filters take, and all; `None` where they were not counted.
    pub(crate) selected: Option<(u64, u64)>,
    /// How far allocinfo and the events agree, in rows of functions.
    pub(crate) allocinfo: Option<AllocinfoAgreement>,
    /// Time window as the user gave it.
    pub(crate) time: Option<String>,
    /// The moment that figures are of, where one was asked for.
    pub(crate) at: Option<String>,
    /// Escaped name of the trace.
    pub(crate) title: String,
    /// Escaped name of the trace before, where two are compared.
    pub(crate) title_before: Option<String>,
    /// The command line names no trace: the first line tells which one is meant.
    pub(crate) is_default_input: bool,
    /// Inputs that the command line names beside the first.
    pub(crate) more_inputs: usize,
    /// The trace may have call stacks.
    pub(crate) has_stacks: bool,
    /// Events of reclaim were recorded.
    pub(crate) has_reclaim: bool,
    /// Number of slab caches whose objects have red zones.
    pub(crate) red_zones: usize,
    /// What the trace tells of the cgroups of threads.
    pub(crate) cgroups: TellsCgroups,
    /// A recorder still writes the trace.
    pub(crate) is_being_recorded: bool,
    /// Why the view has no rows, where the events that it needs are missing.
    pub(crate) missing: Option<String>,
    /// No event of pages was recorded.
    pub(crate) lacks_pages: bool,
}

/// What a trace tells of the cgroups of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TellsCgroups {
    /// Nothing.
    #[default]
    Nothing,
    /// Those at the start, or changes.
    Some,
    /// All threads were in the root when the recording began.
    RootAlone,
}

impl TellsCgroups {
    /// What `trace` tells.
    pub(crate) fn of(trace: &Trace) -> TellsCgroups {
        let mut lines = trace.metadata.cgroups.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).peekable();
        match lines.peek().is_some() {
            true if lines.all(|line| line.ends_with(b" /")) => TellsCgroups::RootAlone,
            false if !trace.tells_tasks() => TellsCgroups::Nothing,
            _ => TellsCgroups::Some,
        }
    }
}

impl TableOptions {
    /// True if filters select objects: the recorder's own are counted before them.
    pub(crate) fn is_filtered(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Filters in one text: `filter comm=foo,bar pid=7`; `None` without filters.
    pub(crate) fn filter(&self) -> Option<String> {
        let filters: Vec<String> = self.filters.iter().map(|(name, values)| format!("{name}={values}")).collect();
        self.is_filtered().then(|| format!("filter {}", filters.join(" ")))
    }
}

#[cfg(test)]
impl TableOptions {
    /// Options of a plain screen.
    pub(crate) fn plain(width: Option<usize>) -> TableOptions {
        TableOptions {
            screen: Screen::plain(width),
            bytes: false,
            show_addresses: false,
            shows_own: false,
            shows_normal: false,
            shows_inlines: false,
            shows_parts: false,
            top: None,
            ranked: Some(SortKey::Figure(kmemtrace::Figure::Wasted)),
            filters: Vec::new(),
            selected: None,
            allocinfo: None,
            time: None,
            at: None,
            title: String::new(),
            title_before: None,
            is_default_input: false,
            more_inputs: 0,
            has_stacks: false,
            has_reclaim: false,
            red_zones: 0,
            cgroups: TellsCgroups::default(),
            is_being_recorded: false,
            missing: None,
            lacks_pages: false,
        }
    }
}
