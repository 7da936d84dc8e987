//! Reports of memstrack as people type them: `NAME[:PARAMETER…]`, for the recorder and the report alike.

/// Names of the reports, in the order of memstrack's own help.
pub const NAMES: [&str; 6] =
    ["module_summary", "module_top", "task_summary", "task_top", "task_top_json", "proc_slab_static"];

/// Parameters, for messages.
const PARAMETERS: &str = "sort_by_alloc, sort_by_peak, throttle=PERCENT, top=NUMBER";

/// Layout of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A line for each module.
    ModuleSummary,
    /// The stacks of each module.
    ModuleTop,
    /// A line for each thread.
    TaskSummary,
    /// The stacks of each thread.
    TaskTop,
    /// The stacks of each thread as JSON.
    TaskTopJson,
    /// A line for each slab cache, by the kernel's own statistics.
    ProcSlabStatic,
}

impl Layout {
    const ALL: [Layout; 6] = [
        Layout::ModuleSummary,
        Layout::ModuleTop,
        Layout::TaskSummary,
        Layout::TaskTop,
        Layout::TaskTopJson,
        Layout::ProcSlabStatic,
    ];

    /// Name on command lines and in the output.
    #[expect(clippy::indexing_slicing, reason = "there is a name for each layout")]
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// Report with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Layout.
    pub layout: Layout,
    /// Largest peak first, rather than most live pages.
    pub by_peak: bool,
    /// Percentage of all pages that the rows of each level make up, the largest ones; 0: no limit.
    pub throttle: Option<u8>,
    /// Number of rows, or of callers of a node; 0: no limit.
    pub top: Option<usize>,
}

impl Report {
    /// Parses a report. As in memstrack, empty parameters are passed over, and the last of two equal ones counts.
    ///
    /// # Errors
    /// A name or a parameter that is none.
    pub fn parse(text: &str) -> Result<Report, String> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let layout = Layout::ALL.into_iter().find(|layout| layout.name() == name);
        let Some(layout) = layout else { return Err(format!("no report of memstrack; it has {}", NAMES.join(", "))) };
        let mut report = Report { layout, by_peak: false, throttle: None, top: None };
        for parameter in parameters.split(':').filter(|parameter| !parameter.is_empty()) {
            let wrong = |reason: &str| format!("{parameter} of {name}: {reason}");
            match parameter.split_once('=') {
                None if parameter == "sort_by_alloc" => report.by_peak = false,
                None if parameter == "sort_by_peak" => report.by_peak = true,
                Some(("throttle", percent)) => {
                    let percent = percent.parse().ok().filter(|percent| *percent <= 100);
                    report.throttle = Some(percent.ok_or_else(|| wrong("throttle is a percentage from 0 to 100"))?);
                }
                Some(("top", rows)) => {
                    report.top = Some(rows.parse().map_err(|_| wrong("top is a number of rows, 0 for all"))?);
                }
                _ => return Err(wrong(&format!("not a parameter; there are {PARAMETERS}"))),
            }
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_with_their_parameters() {
        let plain = Report { layout: Layout::ModuleTop, by_peak: false, throttle: None, top: None };
        for (text, report) in [
            ("module_top", plain),
            ("module_top:", plain),
            ("module_top:sort_by_peak:sort_by_alloc", plain),
            (
                "task_top:top=5::sort_by_peak:throttle=80",
                Report { layout: Layout::TaskTop, by_peak: true, throttle: Some(80), top: Some(5) },
            ),
            ("proc_slab_static:top=0:top=1", Report { layout: Layout::ProcSlabStatic, top: Some(1), ..plain }),
        ] {
            assert_eq!(Report::parse(text), Ok(report), "{text}");
        }
        for name in NAMES {
            assert_eq!(Report::parse(name).map(|report| report.layout.name()), Ok(name));
        }
        for (text, said) in [
            ("module_to", "it has module_summary, "),
            ("", "it has module_summary, "),
            ("task_top:tops=5", "tops=5 of task_top: not a parameter; there are sort_by_alloc, "),
            ("task_top:top=-1", "top=-1 of task_top: top is a number"),
            ("task_top:throttle=101", "throttle is a percentage"),
            ("task_top:throttle=", "throttle is a percentage"),
            ("task_top:top", "not a parameter"),
        ] {
            let error = Report::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
