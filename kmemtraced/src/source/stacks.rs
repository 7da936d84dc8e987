//! Stacks of events: triggers or an option of a trace directory make the kernel record them.
//!
//! A trigger writes stacks of chosen events alone, and costs half of the option where frees need none. Kernels before 5.18 write
//! a trigger's stacks to the top-level buffer, unless they have the mending patch, so a first stack has to prove where it lands.

use std::io::Write;

use anyhow::{Context, bail};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::trace::Scope;

use crate::choices::StackWhen;
use crate::fs::kernelfs::KernelFs;
use crate::source::{events, kernel, latency};

/// Option of a trace directory: a stack after each event.
const OPTION: &str = "options/stacktrace";
/// Words that begin the trigger in a control file.
const TRIGGER: &str = "stacktrace";
/// Text of a stack in `trace`.
const STACK: &str = "<stack trace>";
/// Word for begins of reclaim and compaction, for `meta.out`.
const BEGINS: &str = "begin";
/// Events of which [`allocate`] makes at least one.
const PROOF_EVENTS: [&str; 3] = ["kmem/kmem_cache_alloc", "kmem/kmalloc", "kmem/mm_page_alloc"];

/// Stacks that the kernel records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stacks {
    /// Way and choice, as `trigger alloc`, a line each, for `meta.out`; empty without stacks.
    pub(crate) recorded: String,
    /// Reason for the way, for people; empty where there was no choice.
    pub(crate) reason: String,
    /// Events with a trigger of the recorder.
    triggers: Vec<String>,
    /// Reason why begins of reclaim and compaction have no stacks, for people.
    pub(crate) note: Option<String>,
}

impl Stacks {
    /// Text about the stacks for people; `None` without stacks.
    pub(crate) fn shown(&self) -> Option<String> {
        let (way, _) = self.recorded.split_once(' ')?;
        let by = if way == "trigger" { "a trigger" } else { "the instance's option" };
        let choices = self.recorded.lines().filter_map(|line| line.split_once(' '));
        let events = choices.map(|(_, events)| match events {
            "alloc" => "allocations".to_owned(),
            "all" => "all events".to_owned(),
            BEGINS => "begins of reclaim and compaction".to_owned(),
            filter => format!("allocations that have {}", escape(filter.as_bytes())),
        });
        Some(format!("stacks with {}, by {by}", events.collect::<Vec<_>>().join(" and ")))
    }

    /// Adds a line about events that have stacks.
    fn add(&mut self, way: &str, events: &str) {
        if !self.recorded.is_empty() {
            self.recorded.push('\n');
        }
        self.recorded += &format!("{way} {events}");
    }
}

/// Stacks that are wished for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wished<'a> {
    /// Events of objects that are to have stacks; `None`: no event.
    pub(crate) when: Option<&'a StackWhen>,
    /// True if begins of reclaim and compaction are to have stacks.
    pub(crate) begins: bool,
}

/// Wished stacks, with the way to them.
pub(crate) struct Plan<'a> {
    wished: Wished<'a>,
    way: Way,
}

/// Plans the stacks of the instance `fs`, which records nothing yet; `None` without any.
pub(crate) fn plan<'a>(
    fs: &KernelFs,
    top: &KernelFs,
    events: &[String],
    wished: Wished<'a>,
    scope: Scope,
) -> anyhow::Result<Option<Plan<'a>>> {
    let begins = wished.begins && latency::begins(events).next().is_some();
    let wished = Wished { begins, ..wished };
    match wished.when {
        Some(StackWhen::Alloc) if begins => {}
        Some(when) => check(fs, events, when)?,
        None if !begins => return Ok(None),
        None => {}
    }
    let way = choose(fs, top, wished.when.unwrap_or(&StackWhen::Alloc), scope)?;
    Ok(Some(Plan { wished, way }))
}

impl Plan<'_> {
    /// Switches the stacks on, as [`set`].
    pub(crate) fn set(self, fs: &KernelFs, events: &[String], filter: Option<&str>) -> anyhow::Result<Stacks> {
        let Plan { wished: Wished { when, begins }, way } = self;
        let by_trigger = way.by_trigger;
        let has_allocations = events::allocations(events).next().is_some();
        let mut stacks = match when.filter(|_| has_allocations || !by_trigger) {
            Some(when) => set(fs, events, when, filter, way)?,
            None => Stacks { reason: way.reason, ..Stacks::default() },
        };
        if begins && by_trigger {
            add_begins(fs, events, &mut stacks);
        } else if begins && stacks.recorded.is_empty() {
            let reason = std::mem::take(&mut stacks.reason);
            let remedy = if fs.has(OPTION)? { ": --stack=all records them with all events" } else { "" };
            stacks.note = Some(format!("no stacks with reclaim and compaction: {reason}{remedy}"));
        }
        Ok(stacks)
    }
}

/// Switches on the stacks of begins of reclaim and compaction, by triggers. Where the kernel refuses one, a note says so.
fn add_begins(fs: &KernelFs, events: &[String], stacks: &mut Stacks) {
    let mut is_set = false;
    for event in latency::begins(events) {
        match fs.set(&trigger_file(event), TRIGGER) {
            Ok(()) => {
                is_set = true;
                stacks.triggers.push(event.to_owned());
            }
            Err(error) => stacks.note = Some(format!("no stacks with {event}: {error:#}")),
        }
    }
    if is_set {
        stacks.add("trigger", BEGINS);
    }
}

/// Way to make the kernel record stacks, and the reason for it.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// True for triggers, false for the option.
    pub(crate) by_trigger: bool,
    pub(crate) reason: String,
}

impl Way {
    fn option(reason: impl Into<String>) -> Way {
        Way { by_trigger: false, reason: reason.into() }
    }
}

/// Chooses the way for the instance `fs`, which records nothing yet. The proof leaves events in its buffer.
pub(crate) fn choose(fs: &KernelFs, top: &KernelFs, when: &StackWhen, scope: Scope) -> anyhow::Result<Way> {
    if *when == StackWhen::All {
        return Ok(Way::option("all events have stacks"));
    }
    if scope == Scope::Tasks {
        return Ok(Way::option("a trigger may add stacks of other commands"));
    }
    let Some(event) = proof_event(fs)? else {
        return Ok(Way::option("this kernel has no triggers"));
    };
    if kernel::OWN_TRIGGER_STACKS.is_after(&kernel::release()) && is_in_use(top) {
        return Ok(Way::option(
            "a trigger of this kernel may write to the top-level buffer, which another program uses",
        ));
    }
    Ok(match has_arrived(fs, event) {
        Ok(true) => Way { by_trigger: true, reason: "a first stack arrived in the instance".to_owned() },
        Ok(false) => Way::option("no stack of a trigger arrives in the instance"),
        Err(error) => Way::option(format!("{error:#}")),
    })
}

/// Event for a proof; `None` where the kernel has no triggers.
pub(crate) fn proof_event(fs: &KernelFs) -> anyhow::Result<Option<&'static str>> {
    for event in PROOF_EVENTS {
        if fs.has(&trigger_file(event))? {
            return Ok(Some(event));
        }
    }
    Ok(None)
}

/// True if the trace directory has events or a tracer at work.
fn is_in_use(fs: &KernelFs) -> bool {
    let has = |file: &str, idle: &str| fs.get_if_there(file).is_ok_and(|text| !["", idle].contains(&text.trim()));
    has("set_event", "") || has("current_tracer", "nop")
}

/// True if the stack of one allocation is in the buffer of the instance. The trigger fires once, so that a kernel with one buffer
/// for all triggers gets one stack at most.
fn has_arrived(fs: &KernelFs, event: &str) -> anyhow::Result<bool> {
    let trigger = trigger_file(event);
    let prove = || {
        fs.set("tracing_on", "1")?;
        fs.set(&trigger, &format!("{TRIGGER}:1"))?;
        allocate();
        anyhow::Ok(fs.get("trace")?.contains(STACK))
    };
    let proven = prove();
    let _ = fs.write(&trigger, &format!("!{TRIGGER}"));
    fs.set("tracing_on", "0")?;
    proven
}

/// Makes the kernel allocate objects and a page, and frees them.
pub(crate) fn allocate() {
    if let Ok((_reader, mut writer)) = std::io::pipe() {
        let _ = writer.write(b"x");
    }
}

/// Switches the stacks on, in an instance that records nothing yet and has the filter `filter` on its allocations. An error names
/// the event and the kernel's reason.
pub(crate) fn set(
    fs: &KernelFs,
    events: &[String],
    when: &StackWhen,
    filter: Option<&str>,
    way: Way,
) -> anyhow::Result<Stacks> {
    let Way { by_trigger, reason } = way;
    if !by_trigger {
        if !fs.has(OPTION)? {
            let release = kernel::release();
            if !fs.has("options")? {
                bail!(
                    "--stack: before Linux {} the option for stacks holds for all buffers, and this is {release} ({reason}): \
                     leave out --stack",
                    kernel::OWN_OPTIONS
                );
            }
            bail!("--stack: this kernel ({release}) records no stacks: CONFIG_STACKTRACE is required");
        }
        fs.set(OPTION, "1")?;
        return Ok(Stacks { recorded: "option all".to_owned(), reason, ..Stacks::default() });
    }
    // The kernel fires a trigger for events that the filter leaves out, too.
    let wished = if let StackWhen::Filter(wished) = when { Some(wished.as_str()) } else { None };
    let condition = match (filter, wished) {
        (Some(filter), Some(wished)) => format!(" if ({filter}) && ({wished})"),
        (Some(one), None) | (None, Some(one)) => format!(" if {one}"),
        (None, None) => String::new(),
    };
    let mut stacks = Stacks { reason, ..Stacks::default() };
    for event in events::allocations(events) {
        let set = fs.set(&trigger_file(event), &format!("{TRIGGER}{condition}"));
        set.with_context(|| format!("--stack: {event} cannot have a trigger"))?;
        stacks.triggers.push(event.to_owned());
    }
    stacks.add("trigger", wished.unwrap_or("alloc"));
    Ok(stacks)
}

/// Checks that stacks were asked for of events that can have them: a filter is one of allocations.
pub(crate) fn check(fs: &KernelFs, events: &[String], when: &StackWhen) -> anyhow::Result<()> {
    match when {
        StackWhen::All => Ok(()),
        StackWhen::Filter(filter) => events::check_filter(fs, events, "--stack", filter),
        StackWhen::Alloc if events::allocations(events).next().is_some() => Ok(()),
        StackWhen::Alloc => bail!("--stack: no allocation event is recorded: add one to -e, or give --stack=all"),
    }
}

/// True if the stacks are still switched on as [`set`] did.
pub(crate) fn are_set(fs: &KernelFs, stacks: &Stacks) -> anyhow::Result<bool> {
    for event in &stacks.triggers {
        if !fs.get(&trigger_file(event))?.starts_with(TRIGGER) {
            return Ok(false);
        }
    }
    Ok(!stacks.recorded.starts_with("option") || fs.get(OPTION)?.trim() == "1")
}

/// Stacks that are switched on in a buffer that is taken over.
pub(crate) fn found(fs: &KernelFs, events: &[String]) -> anyhow::Result<Stacks> {
    let recorded = if fs.get_if_there(OPTION)?.trim() == "1" {
        "option all".to_owned()
    } else {
        let (mut triggers, mut of_begins) = (Vec::new(), 0);
        for event in events {
            let text = fs.get_if_there(&trigger_file(event))?;
            let trigger = text.lines().find(|line| line.starts_with(TRIGGER)).map(str::to_owned);
            of_begins += usize::from(trigger.is_some() && latency::is_begin(event));
            triggers.extend(trigger);
        }
        let conditions = triggers.iter().map(|trigger| trigger.split_once(" if ").map(|(_, condition)| condition));
        match conditions.flatten().next() {
            Some(condition) => format!("trigger {condition}"),
            None if triggers.is_empty() => String::new(),
            None if triggers.len() == of_begins => format!("trigger {BEGINS}"),
            None if triggers.len() == events.len() => "trigger all".to_owned(),
            None => "trigger alloc".to_owned(),
        }
    };
    Ok(Stacks { recorded, ..Stacks::default() })
}

/// Control file of an event's triggers.
fn trigger_file(event: &str) -> String {
    format!("events/{event}/trigger")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A trace directory of plain files, whose buffer holds `trace`.
    fn instance(trace: &str) -> (tempfile::TempDir, KernelFs) {
        let dir = tempfile::tempdir().unwrap();
        for event in ["kmem_cache_alloc", "mm_page_alloc", "mm_page_free"] {
            let event = dir.path().join("events/kmem").join(event);
            fs::create_dir_all(&event).unwrap();
            fs::write(event.join("trigger"), "").unwrap();
        }
        fs::create_dir_all(dir.path().join("options")).unwrap();
        for (file, text) in [("tracing_on", "0"), ("trace", trace), (OPTION, "0")] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        let fs = KernelFs::at(dir.path()).unwrap();
        (dir, fs)
    }

    fn events() -> Vec<String> {
        ["kmem/mm_page_alloc", "kmem/mm_page_free"].map(str::to_owned).into()
    }

    /// Text for `meta.out`, and the text of a file, after stacks were switched on where the buffer holds `trace`.
    fn set_up(trace: &str, when: &StackWhen, filter: Option<&str>, scope: Scope, file: &str) -> (String, String) {
        let (_dir, fs) = instance(trace);
        let way = choose(&fs, &fs, when, scope).unwrap();
        assert_eq!(fs.get("tracing_on").unwrap(), "0", "the proof is over");
        let stacks = set(&fs, &events(), when, filter, way).unwrap();
        assert!(are_set(&fs, &stacks).unwrap());
        (stacks.recorded, fs.get(file).unwrap())
    }

    #[test]
    fn a_stack_that_lands_elsewhere_makes_it_the_option() {
        let (arrived, trigger) = ("x: <stack trace>\n => y\n", "events/kmem/mm_page_alloc/trigger");
        let of = |trace, when: &StackWhen, file| set_up(trace, when, None, Scope::System, file);
        let pair = |recorded: &str, text: &str| (recorded.to_owned(), text.to_owned());
        let alloc = StackWhen::Alloc;
        assert_eq!(of(arrived, &alloc, trigger), pair("trigger alloc", "stacktrace"));
        assert_eq!(of(arrived, &alloc, OPTION), pair("trigger alloc", "0"));
        assert_eq!(of("", &alloc, OPTION), pair("option all", "1"));
        assert_eq!(of("", &alloc, trigger), pair("option all", ""));
        assert_eq!(of(arrived, &StackWhen::All, OPTION), pair("option all", "1"));
        // A trigger may fire for tasks that are not recorded.
        assert_eq!(set_up(arrived, &alloc, None, Scope::Tasks, OPTION), pair("option all", "1"));
    }

    #[test]
    fn a_trigger_has_the_filter_of_the_allocations_too() {
        let wished = StackWhen::Filter("order > 0".to_owned());
        for (when, filter, condition) in [
            (&wished, None, "stacktrace if order > 0"),
            (&StackWhen::Alloc, Some("pid == 1"), "stacktrace if pid == 1"),
            (&wished, Some("a || b"), "stacktrace if (a || b) && (order > 0)"),
        ] {
            let (_, text) = set_up(STACK, when, filter, Scope::System, "events/kmem/mm_page_alloc/trigger");
            assert_eq!(text, condition);
        }
    }

    #[test]
    fn begins_of_reclaim_have_stacks_by_triggers_alone() {
        let begin = "vmscan/mm_vmscan_memcg_reclaim_begin";
        let planned = |trace: &str, when: Option<StackWhen>, is_wished: bool, events: &[&str]| {
            let (dir, fs) = instance(trace);
            fs::create_dir_all(dir.path().join("events").join(begin)).unwrap();
            fs::write(dir.path().join(trigger_file(begin)), "").unwrap();
            let events: Vec<String> = events.iter().map(|&event| event.to_owned()).collect();
            let wished = Wished { when: when.as_ref(), begins: is_wished };
            let plan = plan(&fs, &fs, &events, wished, Scope::System).unwrap();
            let stacks = plan.map(|plan| plan.set(&fs, &events, None).unwrap()).unwrap_or_default();
            assert!(are_set(&fs, &stacks).unwrap());
            assert_eq!(fs.get(&trigger_file(begin)).unwrap() == TRIGGER, stacks.recorded.contains("trigger begin"));
            (stacks.recorded, stacks.note.is_some())
        };
        let (latency, both) = (&["vmscan/mm_vmscan_throttled", begin][..], &["kmem/mm_page_alloc", begin][..]);
        let (alloc, all) = (Some(StackWhen::Alloc), Some(StackWhen::All));
        let pair = |recorded: &str, is_noted: bool| (recorded.to_owned(), is_noted);
        assert_eq!(planned(STACK, None, true, latency), pair("trigger begin", false));
        assert_eq!(planned(STACK, None, true, both), pair("trigger begin", false));
        assert_eq!(planned(STACK, alloc.clone(), true, both), pair("trigger alloc\ntrigger begin", false));
        assert_eq!(planned(STACK, alloc.clone(), true, latency), pair("trigger begin", false));
        assert_eq!(planned(STACK, all, true, latency), pair("option all", false));
        assert_eq!(planned(STACK, None, false, latency), pair("", false));
        assert_eq!(planned(STACK, None, true, &["kmem/kmalloc"]), pair("", false));
        // No stack arrives: an option would write stacks for all events.
        assert_eq!(planned("", None, true, latency), pair("", true));
        assert_eq!(planned("", alloc, true, both), pair("option all", false));
    }

    #[test]
    fn stacks_of_a_buffer_that_is_taken_over_are_told() {
        let of = |texts: &[(&str, &str)]| {
            let (dir, fs) = instance("");
            texts.iter().for_each(|(file, text)| fs::write(dir.path().join(file), text).unwrap());
            found(&fs, &events()).unwrap().recorded
        };
        let [alloc, free] = ["events/kmem/mm_page_alloc/trigger", "events/kmem/mm_page_free/trigger"];
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[(OPTION, "1\n")]), "option all");
        assert_eq!(of(&[(alloc, "stacktrace:unlimited\n")]), "trigger alloc");
        assert_eq!(of(&[(alloc, "stacktrace:unlimited\n"), (free, "stacktrace:unlimited\n")]), "trigger all");
        assert_eq!(of(&[(alloc, "stacktrace:unlimited if order > 0\n")]), "trigger order > 0");
        assert_eq!(of(&[(alloc, "# Available triggers:\n# stacktrace\n")]), "");
        let (dir, fs) = instance("");
        let begin = "vmscan/mm_vmscan_direct_reclaim_begin";
        fs::create_dir_all(dir.path().join("events").join(begin)).unwrap();
        fs::write(dir.path().join(trigger_file(begin)), "stacktrace:unlimited\n").unwrap();
        assert_eq!(found(&fs, &[events(), vec![begin.to_owned()]].concat()).unwrap().recorded, "trigger begin");
    }

    #[test]
    fn a_busy_top_level_buffer_is_known() {
        let (dir, fs) = instance("");
        assert!(!is_in_use(&fs), "files that are not there");
        for (events, tracer, is_busy) in
            [("\n", "nop\n", false), ("kmem:kfree\n", "nop\n", true), ("", "function\n", true)]
        {
            fs::write(dir.path().join("set_event"), events).unwrap();
            fs::write(dir.path().join("current_tracer"), tracer).unwrap();
            assert_eq!(is_in_use(&fs), is_busy, "{events}{tracer}");
        }
    }
}
