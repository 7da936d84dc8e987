//! Times of kernel functions, by the tracer `function_graph` of the recorder's instance, limited to some functions.
//!
//! Kernels before 6.12 or so have the tracer in the top-level buffer alone, which a recorder never touches.

use anyhow::{Context, bail};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::trace::Scope;

use crate::fs::kernelfs::KernelFs;
use crate::source::instance::Instance;
use crate::source::task_lists;

/// Functions of reclaim and compaction.
const DEFAULT: [&str; 8] = [
    "try_to_free_pages",
    "try_to_free_mem_cgroup_pages",
    "shrink_node",
    "shrink_lruvec",
    "shrink_slab",
    "do_shrink_slab",
    "compact_zone",
    "try_to_compact_pages",
];
/// Most functions that a text for people names.
const MAX_SHOWN: usize = 12;
const TRACER: &str = "function_graph";
/// Control file of the tracer.
const CURRENT: &str = "current_tracer";
/// Control file with the functions to record: all, where it is empty.
const FILTER: &str = "set_ftrace_filter";

/// Control file with the tasks whose functions are recorded: all, where it is empty.
const TASKS: &str = "set_ftrace_pid";
/// Option that adds the children of these tasks.
const FORK: &str = "options/function-fork";

/// Functions that the kernel records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    /// Names of functions, for `meta.out`; empty where none are recorded.
    pub(crate) recorded: Vec<String>,
    /// Functions or patterns that the kernel did not take.
    pub(crate) refused: Vec<String>,
    /// Reason why functions that the user asked for are not recorded, for people.
    pub(crate) note: Option<String>,
}

impl Functions {
    /// Text about the functions for people; `None` where none are recorded.
    pub(crate) fn shown(&self) -> Option<String> {
        let names: Vec<_> = self.recorded.iter().take(MAX_SHOWN).map(|name| escape(name.as_bytes())).collect();
        let more = self.recorded.len().saturating_sub(MAX_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| format!("times of functions: {}{more}", names.join(", ")))
    }
}

/// Makes the instance `fs`, which records nothing yet, record the functions `asked`: by default those of reclaim and compaction that
/// the kernel has. Where the kernel refuses, `note` says why, and nothing is recorded of functions.
pub(crate) fn set(fs: &KernelFs, top: &KernelFs, asked: &[String], scope: Scope) -> Functions {
    let is_default = asked.is_empty();
    let asked: Vec<&str> = if is_default { DEFAULT.to_vec() } else { asked.iter().map(String::as_str).collect() };
    let mut refused = Vec::new();
    match switch_on(fs, top, &asked, scope, &mut refused) {
        Ok(recorded) => {
            let named = refused.join(", ");
            let note = (!is_default && !refused.is_empty()).then(|| {
                format!("no times of {named}, which this kernel cannot record: those of other functions are recorded")
            });
            Functions { recorded, refused, note }
        }
        Err(error) => {
            // The filter alone does nothing, and goes with the instance.
            let _ = fs.write(CURRENT, "nop");
            let note = Some(format!("no times of functions: {error:#}"));
            Functions { recorded: Vec::new(), refused, note }
        }
    }
}

fn switch_on(
    fs: &KernelFs,
    top: &KernelFs,
    asked: &[&str],
    scope: Scope,
    refused: &mut Vec<String>,
) -> anyhow::Result<Vec<String>> {
    let has_tracer = |fs: &KernelFs| {
        let tracers = fs.get_if_there("available_tracers")?;
        anyhow::Ok(tracers.split_whitespace().any(|tracer| tracer == TRACER))
    };
    if !has_tracer(fs)? {
        if has_tracer(top)? {
            bail!("this kernel has the tracer {TRACER} for its top-level buffer only, which is left alone");
        }
        bail!("this kernel has no tracer {TRACER}: it requires CONFIG_FUNCTION_GRAPH_TRACER");
    }
    let mut last = None;
    for name in asked {
        // Without a space at its end the kernel takes a name when the file is closed, and tells no error.
        if let Err(error) = fs.write(FILTER, &format!("{name} ")) {
            refused.push((*name).to_owned());
            last = Some(error);
        }
    }
    let filter = fs.get(FILTER)?;
    let names = filter.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_whitespace().next());
    let recorded: Vec<String> = names.map(str::to_owned).collect();
    // The tracer would record all functions.
    if recorded.is_empty() {
        let reason = last.map(|error| format!(" ({error})")).unwrap_or_default();
        bail!("the kernel takes none of {}{reason}", asked.join(", "));
    }
    if scope == Scope::Tasks {
        fs.set(FORK, "1").context("functions of some tasks alone cannot be recorded")?;
    }
    fs.set(CURRENT, TRACER).context("the tracer is refused")?;
    Ok(recorded)
}

/// Limits the functions to those that the threads and the tasks that they start call.
pub(crate) fn follow(fs: &KernelFs, functions: &Functions, threads: &[u32]) -> anyhow::Result<()> {
    if functions.recorded.is_empty() { Ok(()) } else { task_lists::add(fs, TASKS, threads) }
}

/// Finds out which functions can be recorded, in a new instance `name`, which is removed again.
pub(crate) fn try_out(tracefs: KernelFs, name: &str) -> anyhow::Result<Functions> {
    let instance = Instance::create(tracefs, name)?;
    Ok(set(&instance.fs, instance.top(), &[], Scope::System))
}

/// True if the functions are still recorded as [`set`] left them.
pub(crate) fn are_set(fs: &KernelFs, functions: &Functions) -> anyhow::Result<bool> {
    Ok(functions.recorded.is_empty() || fs.get(CURRENT)?.trim() == TRACER)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A trace directory of plain files with these tracers and this filter.
    fn directory(tracers: &str, filter: &str) -> (tempfile::TempDir, KernelFs) {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [("available_tracers", tracers), (FILTER, filter), (CURRENT, "nop")] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        let fs = KernelFs::at(dir.path()).unwrap();
        (dir, fs)
    }

    /// Note, and the tracer that is set, with these tracers in the instance and at the top.
    fn noted(tracers: &str, top: &str, asked: &[&str]) -> (String, String) {
        let (_dir, fs) = directory(tracers, "");
        let (_top_dir, top) = directory(top, "");
        let asked: Vec<String> = asked.iter().map(|&name| name.to_owned()).collect();
        let functions = set(&fs, &top, &asked, Scope::System);
        assert_eq!(top.get(CURRENT).unwrap() + &top.get(FILTER).unwrap(), "nop", "the top level is left alone");
        (functions.note.unwrap_or_default(), fs.get(CURRENT).unwrap())
    }

    #[test]
    fn a_kernel_without_the_tracer_is_told_in_a_sentence() {
        let (note, tracer) = noted("function nop\n", "function nop\n", &[]);
        assert!(note.contains("has no tracer function_graph: it requires CONFIG_FUNCTION_GRAPH_TRACER"), "{note}");
        assert_eq!(tracer, "nop");
        let (note, tracer) = noted("function nop\n", "function_graph function nop\n", &[]);
        assert!(note.contains("for its top-level buffer only, which is left alone"), "{note}");
        assert_eq!(tracer, "nop");
        let (note, tracer) = noted("blk function_graph nop\n", "nop\n", &["shrink_node"]);
        assert_eq!((note.as_str(), tracer.as_str()), ("", TRACER));
    }

    #[test]
    fn functions_of_a_command_alone_take_a_kernel_that_follows_its_children() {
        let (dir, fs) = directory(TRACER, "");
        assert!(set(&fs, &fs, &[], Scope::Tasks).recorded.is_empty(), "no option for children");
        assert_eq!(fs.get(CURRENT).unwrap().get(..3), Some("nop"));
        for (file, text) in [(FORK, "0"), (TASKS, ""), (FILTER, "")] {
            fs::create_dir_all(dir.path().join("options")).unwrap();
            fs::write(dir.path().join(file), text).unwrap();
        }
        let functions = set(&fs, &fs, &[], Scope::Tasks);
        follow(&fs, &functions, &[12]).unwrap();
        assert_eq!((fs.get(FORK).unwrap(), fs.get(TASKS).unwrap()), ("1".to_owned(), "12".to_owned()));
    }

    #[test]
    fn all_functions_are_never_recorded() {
        let (dir, fs) = directory(TRACER, "#### all functions enabled ####\n");
        fs::remove_file(dir.path().join(FILTER)).unwrap();
        let functions = set(&fs, &fs, &[], Scope::System);
        assert!(functions.recorded.is_empty() && functions.note.is_some(), "{functions:?}");
        assert_eq!((fs.get(CURRENT).unwrap(), functions.refused.len()), ("nop".to_owned(), DEFAULT.len()));
    }
}
