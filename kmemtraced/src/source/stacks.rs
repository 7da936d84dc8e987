//! Stacks of events: triggers or an option of a trace directory make the kernel record them.
//!
//! A trigger writes stacks of chosen events alone, and costs half of the option where frees need none. Kernels before 5.18 write
//! a trigger's stacks to the top-level buffer, unless they have the mending patch, so a first stack has to prove where it lands.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Context, bail};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::trace::Scope;

use crate::choices::StackWhen;
use crate::fs::kernelfs::KernelFs;
use crate::source::{events, kernel, latency, undo};

/// Option of a trace directory: a stack after each event.
const OPTION: &str = "options/stacktrace";
/// Words that begin the trigger in a control file.
const TRIGGER: &str = "stacktrace";
/// Text of a stack in `trace`.
const STACK: &str = "<stack trace>";
/// Word for begins of reclaim and compaction, for `meta.out`.
const BEGINS: &str = "begin";
/// Words for allocations whose call site only a stack gives, for `meta.out`.
const PERCPU: &str = "percpu";
const VMALLOC: &str = "vmalloc";
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
    /// Reasons why events have no stacks that the recorder gives them unasked, for people.
    pub(crate) notes: Vec<String>,
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
            BEGINS => "starts of reclaim and compaction".to_owned(),
            PERCPU => "allocations of per-CPU memory".to_owned(),
            VMALLOC => "vmalloc areas".to_owned(),
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
    /// True if allocations whose call site only a stack gives are to have stacks.
    pub(crate) sites: bool,
}

/// Wished stacks, with the way to them.
pub(crate) struct Plan<'a> {
    wished: Wished<'a>,
    /// Events that are to have stacks for their call sites.
    sites: Vec<&'static str>,
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
    let sites = if wished.sites && wished.when.is_none() { events::without_site(fs, events)? } else { Vec::new() };
    let wished = Wished { begins, ..wished };
    match wished.when {
        Some(StackWhen::Alloc) if begins => {}
        Some(when) => check(fs, events, when)?,
        None if !begins && sites.is_empty() => return Ok(None),
        None => {}
    }
    let way = choose(fs, top, wished.when.or(begins.then_some(&StackWhen::Alloc)), scope)?;
    Ok(Some(Plan { wished, sites, way }))
}

impl Plan<'_> {
    /// Switches the stacks on, as [`set`].
    pub(crate) fn set(self, fs: &KernelFs, events: &[String], filter: Option<&str>) -> anyhow::Result<Stacks> {
        let Plan { wished: Wished { when, begins, .. }, sites, way } = self;
        let by_trigger = way.by_trigger;
        let has_option = fs.has(OPTION)?;
        let when = when.filter(|_| events::allocations(events).next().is_some() || !by_trigger);
        // Without triggers these events have stacks if all others may have some, too.
        let is_cheap = !sites.is_empty() && !by_trigger && has_option && events::are_rare(events);
        let mut stacks = match when.or(is_cheap.then_some(&StackWhen::All)) {
            Some(when) => set(fs, events, when, filter, way)?,
            None => Stacks { reason: way.reason, ..Stacks::default() },
        };
        if by_trigger {
            add_triggers(fs, latency::begins(events).filter(|_| begins), None, &mut stacks);
            add_triggers(fs, sites.into_iter(), filter, &mut stacks);
        } else if stacks.recorded.is_empty() {
            let reason = std::mem::take(&mut stacks.reason);
            let remedy = if has_option { ": --stack=all records them with all events" } else { "" };
            let lacking = begins.then_some("reclaim and compaction").into_iter().chain(sites);
            stacks.notes.extend(lacking.map(|events| format!("no stacks with {events}: {reason}{remedy}")));
        }
        Ok(stacks)
    }
}

/// Switches on stacks of these events by triggers, under the filter that the events have. Where the kernel refuses one, a note says so.
fn add_triggers<'a>(fs: &KernelFs, events: impl Iterator<Item = &'a str>, filter: Option<&str>, stacks: &mut Stacks) {
    let mut words = BTreeSet::new();
    for event in events {
        match fs.set(&trigger_file(event), &format!("{TRIGGER}{}", condition(filter, None))) {
            Ok(()) => {
                stacks.triggers.push(event.to_owned());
                words.extend(word(event));
            }
            Err(error) => stacks.notes.push(format!("no stacks with {event}: {error:#}")),
        }
    }
    words.into_iter().for_each(|word| stacks.add("trigger", word));
}

/// Word for `meta.out` of an event that has a stack unasked; `None` for another event.
fn word(event: &str) -> Option<&str> {
    match event {
        events::PERCPU_ALLOC => Some(PERCPU),
        events::VMALLOC_ALLOC => Some(VMALLOC),
        _ => latency::is_begin(event).then_some(BEGINS),
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

/// Chooses the way for the instance `fs`, which records nothing yet; `None`: stacks of rare events alone. The proof leaves events in
/// its buffer.
pub(crate) fn choose(fs: &KernelFs, top: &KernelFs, when: Option<&StackWhen>, scope: Scope) -> anyhow::Result<Way> {
    if when == Some(&StackWhen::All) {
        return Ok(Way::option("all events have stacks"));
    }
    let is_old = kernel::OWN_TRIGGER_STACKS.is_after(&kernel::release());
    // Before Linux 5.16 a trigger makes the kernel record the events of other tasks, too. Later, stacks of others belong to no event.
    if scope == Scope::Tasks && (when.is_some() || is_old) {
        return Ok(Way::option("a trigger may add stacks of other commands"));
    }
    let Some(event) = proof_event(fs)? else {
        return Ok(Way::option("this kernel has no triggers"));
    };
    if is_old && is_in_use(top) {
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
    let wished = if let StackWhen::Filter(wished) = when { Some(wished.as_str()) } else { None };
    let condition = condition(filter, wished);
    let mut stacks = Stacks { reason, ..Stacks::default() };
    for event in events::allocations(events) {
        let set = fs.set(&trigger_file(event), &format!("{TRIGGER}{condition}"));
        set.with_context(|| format!("--stack: {event} cannot have a trigger"))?;
        stacks.triggers.push(event.to_owned());
    }
    stacks.add("trigger", wished.unwrap_or("alloc"));
    Ok(stacks)
}

/// Condition of a trigger on events that have a filter: the kernel fires it for events that the filter leaves out, too.
fn condition(filter: Option<&str>, wished: Option<&str>) -> String {
    match (filter, wished) {
        (Some(filter), Some(wished)) => format!(" if ({filter}) && ({wished})"),
        (Some(one), None) | (None, Some(one)) => format!(" if {one}"),
        (None, None) => String::new(),
    }
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
    if fs.get_if_there(OPTION)?.trim() == "1" {
        return Ok(Stacks { recorded: "option all".to_owned(), ..Stacks::default() });
    }
    let mut triggers = Vec::new();
    for event in events {
        let text = fs.get_if_there(&trigger_file(event))?;
        triggers.extend(text.lines().find(|line| line.starts_with(TRIGGER)).map(|line| (event, line.to_owned())));
    }
    let condition = triggers.iter().find_map(|(_, trigger)| trigger.split_once(" if ").map(|(_, condition)| condition));
    let words: Option<BTreeSet<&str>> = triggers.iter().map(|(event, _)| word(event)).collect();
    let mut stacks = Stacks::default();
    match (condition, words) {
        (Some(condition), _) => stacks.add("trigger", condition),
        (None, Some(words)) => words.into_iter().for_each(|word| stacks.add("trigger", word)),
        (None, None) => stacks.add("trigger", if triggers.len() == events.len() { "all" } else { "alloc" }),
    }
    Ok(stacks)
}

/// Switches on stacks for call sites of the events `more`, which are added to a buffer that is taken over, and plans the undo. Returns a
/// note about each event that has none.
pub(crate) fn add_sites(fs: &KernelFs, more: &[String]) -> anyhow::Result<Vec<String>> {
    let mut stacks = Stacks::default();
    let events = if fs.get_if_there(OPTION)?.trim() == "1" { Vec::new() } else { events::without_site(fs, more)? };
    for event in events {
        let trigger = trigger_file(event);
        if kernel::OWN_TRIGGER_STACKS.is_after(&kernel::release()) {
            stacks
                .notes
                .push(format!("no stacks with {event}: Linux {} or later is required", kernel::OWN_TRIGGER_STACKS));
        } else if !fs.get_if_there(&trigger)?.starts_with(TRIGGER) {
            undo::change_restore(|as_found| as_found.add(std::iter::once((trigger, format!("!{TRIGGER}")))));
            add_triggers(fs, std::iter::once(event), None, &mut stacks);
        }
    }
    Ok(stacks.notes)
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
        let way = choose(&fs, &fs, Some(when), scope).unwrap();
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
            let wished = Wished { when: when.as_ref(), begins: is_wished, sites: true };
            let plan = plan(&fs, &fs, &events, wished, Scope::System).unwrap();
            let stacks = plan.map(|plan| plan.set(&fs, &events, None).unwrap()).unwrap_or_default();
            assert!(are_set(&fs, &stacks).unwrap());
            assert_eq!(fs.get(&trigger_file(begin)).unwrap() == TRIGGER, stacks.recorded.contains("trigger begin"));
            (stacks.recorded, !stacks.notes.is_empty())
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
    fn allocations_have_a_stack_where_nothing_else_gives_their_call_site() {
        let planned = |trace: &str, when: Option<StackWhen>, filter: Option<&str>, scope: Scope, names: &[&str]| {
            let (dir, fs) = instance(trace);
            for event in names {
                fs::create_dir_all(dir.path().join("events").join(event)).unwrap();
                fs::write(dir.path().join(trigger_file(event)), "").unwrap();
                fs::write(dir.path().join(events::filter_file(event)), "").unwrap();
            }
            let events: Vec<String> = names.iter().map(|&event| event.to_owned()).collect();
            let wished = Wished { when: when.as_ref(), begins: true, sites: true };
            let plan = plan(&fs, &fs, &events, wished, scope).unwrap();
            let stacks = plan.map(|plan| plan.set(&fs, &events, filter).unwrap()).unwrap_or_default();
            assert!(are_set(&fs, &stacks).unwrap());
            let trigger = fs.get(&trigger_file(names[0])).unwrap();
            assert_eq!(fs.get(OPTION).unwrap() == "1", stacks.recorded == "option all");
            (stacks.recorded, trigger, stacks.notes.join("; "))
        };
        let (vmalloc, percpu) = (events::VMALLOC_ALLOC, events::PERCPU_ALLOC);
        let free = "vmalloc/free_vmap_area_noflush";
        let of = |trace, names: &[&str]| planned(trace, None, None, Scope::System, names);
        let told =
            |recorded: &str, trigger: &str, note: &str| (recorded.to_owned(), trigger.to_owned(), note.to_owned());
        assert_eq!(of(STACK, &[vmalloc, free]), told("trigger vmalloc", TRIGGER, ""));
        assert_eq!(of(STACK, &[percpu, vmalloc]), told("trigger percpu\ntrigger vmalloc", TRIGGER, ""));
        assert_eq!(of(STACK, &[vmalloc, "kmem/kmalloc"]), told("trigger vmalloc", TRIGGER, ""));
        // No stack arrives: rare events may all have one, others may not.
        assert_eq!(of("", &[vmalloc, free]), told("option all", "", ""));
        let note = "no stacks with vmalloc/alloc_vmap_area: no stack of a trigger arrives in the instance: \
                    --stack=all records them with all events";
        assert_eq!(of("", &[vmalloc, "kmem/kmalloc"]), told("", "", note));
        let filtered = planned(STACK, None, Some("size > 4096"), Scope::System, &[vmalloc, free]);
        assert_eq!(filtered, told("trigger vmalloc", "stacktrace if size > 4096", ""));
        let asked = planned(STACK, Some(StackWhen::Alloc), None, Scope::System, &[vmalloc, free]);
        assert_eq!(asked, told("trigger alloc", TRIGGER, ""));
        let wished = Some(StackWhen::Filter("size > 9".to_owned()));
        let chosen = planned(STACK, wished, None, Scope::System, &[vmalloc, free]);
        assert_eq!(chosen, told("trigger size > 9", "stacktrace if size > 9", ""));
    }

    #[test]
    fn an_event_that_is_added_to_a_buffer_has_a_stack_for_its_call_site() {
        let event = events::VMALLOC_ALLOC;
        for (option, before, after) in [("0", "", TRIGGER), ("1", "", ""), ("0", "stacktrace:1\n", "stacktrace:1\n")] {
            let (dir, fs) = instance("");
            fs::create_dir_all(dir.path().join("events").join(event)).unwrap();
            fs::write(dir.path().join(trigger_file(event)), before).unwrap();
            fs::write(dir.path().join(OPTION), option).unwrap();
            assert_eq!(add_sites(&fs, &[event.to_owned()]).unwrap(), [""; 0]);
            assert_eq!(fs.get(&trigger_file(event)).unwrap(), after);
        }
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
        let unasked = ["vmscan/mm_vmscan_direct_reclaim_begin", events::VMALLOC_ALLOC];
        for event in unasked {
            fs::create_dir_all(dir.path().join("events").join(event)).unwrap();
            fs::write(dir.path().join(trigger_file(event)), "stacktrace:unlimited\n").unwrap();
        }
        let of = |more: &[&str]| {
            let more = more.iter().map(|&event| event.to_owned()).collect();
            found(&fs, &[events(), more].concat()).unwrap().recorded
        };
        assert_eq!(of(&unasked[..1]), "trigger begin");
        assert_eq!(of(&unasked), "trigger begin\ntrigger vmalloc");
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
