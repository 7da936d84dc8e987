//! Reports of memstrack by their names: `TYPE[:PARAMETER…][,…]`, as its option `--report` takes them.

use std::str::FromStr;

/// Layout of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    ModuleSummary,
    ModuleTop,
    TaskSummary,
    TaskTop,
    TaskTopJson,
    ProcSlabStatic,
}

impl Layout {
    pub(crate) const ALL: [Layout; 6] = [
        Layout::ModuleSummary,
        Layout::ModuleTop,
        Layout::TaskSummary,
        Layout::TaskTop,
        Layout::TaskTopJson,
        Layout::ProcSlabStatic,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Layout::ModuleSummary => "module_summary",
            Layout::ModuleTop => "module_top",
            Layout::TaskSummary => "task_summary",
            Layout::TaskTop => "task_top",
            Layout::TaskTopJson => "task_top_json",
            Layout::ProcSlabStatic => "proc_slab_static",
        }
    }
}

/// Figure that rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// Live pages.
    #[default]
    Live,
    /// Greatest number of live pages.
    Peak,
}

/// A report, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) layout: Layout,
    pub(crate) order: Order,
    /// Percentage of the pages that the rows shown hold together; `None`: that of the command line, else all.
    pub(crate) throttle: Option<u8>,
    /// Greatest number of rows, and of children of a node.
    pub(crate) top: Option<usize>,
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Spec, String> {
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        let layout = Layout::ALL.into_iter().find(|layout| layout.name() == name).ok_or_else(|| {
            format!("{name}: no report of memstrack; there are {}", Layout::ALL.map(Layout::name).join(", "))
        })?;
        let mut spec = Spec { layout, order: Order::Live, throttle: None, top: None };
        for word in words {
            match word.split_once('=') {
                None if word == "sort_by_alloc" => spec.order = Order::Live,
                None if word == "sort_by_peak" => spec.order = Order::Peak,
                Some(("throttle", percent)) => {
                    let percent = percent.parse().ok().filter(|percent| *percent <= 100);
                    spec.throttle = Some(percent.ok_or_else(|| format!("{word}: a percentage is 0 to 100"))?);
                }
                Some(("top", rows)) => {
                    spec.top = Some(rows.parse().map_err(|_| format!("{word}: a number of rows is wanted"))?);
                }
                _ => return Err(format!("{word}: a report takes sort_by_alloc, sort_by_peak, throttle=PERCENT, top=N")),
            }
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_have_their_parameters() {
        let plain = Spec { layout: Layout::TaskTop, order: Order::Live, throttle: None, top: None };
        for (text, spec) in [
            ("task_top", plain),
            ("task_top:sort_by_alloc", plain),
            ("task_top:top=5:sort_by_peak", Spec { order: Order::Peak, top: Some(5), ..plain }),
            ("task_top:throttle=80", Spec { throttle: Some(80), ..plain }),
        ] {
            assert_eq!(text.parse(), Ok(spec), "{text}");
        }
        for text in ["", "tasks", "task_top:", "task_top:top", "task_top:top=x", "task_top:throttle=101", "task_top:peak"] {
            assert!(text.parse::<Spec>().is_err(), "{text}");
        }
    }
}
