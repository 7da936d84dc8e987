//! Views and options of texts of one moment: which view each text has, and what a refusal says.

use kmemtrace::{Analysis, GroupKey, Query, Trace};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::trace::{InputKind, TextInfo};

use crate::args::{Args, ExportTo};
use crate::cli::Request;
use crate::views::view::TextNeeds;
use crate::views::{VIEWS, View};

/// Inputs whose entries have call sites.
const WITH_SITES: [&str; 5] = ["page_owner", "alloc_traces", "kmemleak", "slab_report", "allocinfo"];

/// True for a text that the view reads, by its input and its form, where there are texts of several kinds. `None` for a summary, which
/// lists all.
pub(crate) fn takes(view: &View) -> Option<fn(&str, &str) -> bool> {
    Some(match view.text? {
        TextNeeds::Nothing if view.name == VIEWS[0].name => return None,
        TextNeeds::Nothing => |_, _| true,
        TextNeeds::Counters => |input, _| input == "meminfo",
        TextNeeds::Caches => has_caches,
        TextNeeds::Pages => |input, _| input == "page_owner",
        TextNeeds::Objects => |input, form| form == "dump" || input == "kmemleak",
        TextNeeds::Threads => |input, _| ["page_owner", "kmemleak", "slab_report"].contains(&input),
        TextNeeds::Sites | TextNeeds::Stacks => |input, _| WITH_SITES.contains(&input),
    })
}

fn has_caches(input: &str, form: &str) -> bool {
    let is_list = ["alloc_traces", "alloc_calls"].contains(&form);
    is_list || ["kmemleak", "slab_report", "slabinfo"].contains(&input) || form == "oom"
}

/// Kind of a text, by what its entries have.
struct Text<'t> {
    input: &'static str,
    info: &'t TextInfo,
}

impl Text<'_> {
    fn has(&self, needs: TextNeeds) -> bool {
        let has_sites = WITH_SITES.contains(&self.input);
        match needs {
            TextNeeds::Nothing => true,
            TextNeeds::Sites => has_sites,
            TextNeeds::Caches => has_caches(self.input, self.info.form),
            TextNeeds::Stacks => has_sites && (self.info.has_stacks || self.input == "allocinfo"),
            TextNeeds::Threads => has_sites && self.info.has_threads,
            TextNeeds::Objects => self.info.has_objects,
            TextNeeds::Pages => self.input == "page_owner",
            TextNeeds::Counters => self.input == "meminfo",
        }
    }

    /// Names of the views that the text has.
    fn views(&self) -> Vec<&'static str> {
        // Every format of `export` has stacks, or single objects.
        let is_exported = self.has(TextNeeds::Stacks) || self.has(TextNeeds::Objects);
        let others = |name: &str| name != "export" || is_exported;
        let has = |view: &&View| view.text.is_some_and(|needs| self.has(needs)) && others(view.name);
        VIEWS.iter().filter(has).map(|view| view.name).collect()
    }
}

/// Names of the views that a text has, the summary left out; the first one to look at comes first.
pub(crate) fn views(input: &'static str, info: &TextInfo) -> Vec<&'static str> {
    let mut views = Text { input, info }.views();
    views.retain(|view| *view != VIEWS[0].name);
    let first = match input {
        "meminfo" => "balance",
        "slabinfo" => "caches",
        "page_owner" if views.contains(&"modules") => "modules",
        _ => "sites",
    };
    views.sort_by_key(|view| *view != first);
    views
}

/// A name with its article: `a page_owner dump`, `an allocinfo`.
pub(crate) fn with_article(name: &str) -> String {
    let article = if name.starts_with(['a', 'e', 'i', 'o', 'u', 'O']) { "an" } else { "a" };
    format!("{article} {name}")
}

/// Refuses a view, a grouping or an option that a text of one moment does not have, and options of such texts for other inputs.
///
/// # Errors
/// One sentence that names the views that the text has.
pub(crate) fn check(request: &Request, trace: &Trace) -> anyhow::Result<()> {
    let args = &request.args;
    let input = || input_name(trace);
    let (Some(info), InputKind::Other(name)) = (trace.info.text.as_deref(), trace.info.input) else {
        if let Some(option) = args.moment.given().next() {
            anyhow::bail!("{option}: {} is not a text that lists memory at one moment; leave the option out", input());
        }
        return Ok(());
    };
    let text = Text { input: name, info };
    let view = request.view.name;
    if !request.view.text.is_some_and(|needs| text.has(needs)) {
        anyhow::bail!(
            "{}: {view} needs what {} of one moment does not have; use {}",
            input(),
            with_article(info.title),
            text.views().join(", ")
        );
    }
    if !args.fail_on.is_empty() {
        anyhow::bail!("--fail-on: {} lists memory at one moment and has no frees; leave the option out", input());
    }
    if let Some(why) = beyond(args, &text, view) {
        let others: Vec<&str> =
            text.views().into_iter().filter(|other| *other != "growth" || view != "growth").collect();
        anyhow::bail!("{}: {} of one moment {why}; use {}", input(), with_article(info.title), others.join(", "));
    }
    Ok(())
}

/// Keys that need the threads of allocations.
const OF_THREADS: [GroupKey; 5] = [GroupKey::Pid, GroupKey::Tgid, GroupKey::Comm, GroupKey::Task, GroupKey::Cgroup];

/// True where the document shows threads, or depends on them.
pub(crate) fn asks_threads(request: &Request) -> bool {
    let (args, filters) = (&request.args, &request.args.filters);
    request.view.name == "tasks"
        || args.row_keys().iter().any(|key| OF_THREADS.contains(key))
        || !(filters.pid.is_empty() && filters.tgid.is_empty() && filters.comm.is_empty() && filters.cgroup.is_empty())
}

/// True where the document shows stacks or what they tell, the site and the module, or depends on them.
pub(crate) fn asks_stacks(request: &Request) -> bool {
    let filters = &request.args.filters;
    request.view.name != "tasks"
        || !(filters.module.is_empty() && filters.site.is_empty() && filters.cache.is_empty())
        || !filters.branch.is_empty()
        || filters.reclaimable.is_some()
}

/// What an option asks for that the text does not have.
fn beyond(args: &Args, text: &Text<'_>, view: &str) -> Option<&'static str> {
    let by = |keys: &[GroupKey]| args.by.iter().chain(&args.cull).any(|key| keys.contains(key));
    let is_tree_of_stacks = view == "tree" && by(&[GroupKey::Stack]);
    if args.objects && !text.has(TextNeeds::Objects) {
        return Some("does not list single objects");
    }
    if by(&OF_THREADS) && !text.info.has_threads {
        return Some("does not tell threads");
    }
    if is_tree_of_stacks && !text.info.has_stacks {
        return Some("has no stacks");
    }
    match args.to.filter(|_| view == "export") {
        Some(ExportTo::Pprof | ExportTo::Folded | ExportTo::ParquetSites) if !text.has(TextNeeds::Stacks) => {
            Some("has no stacks")
        }
        Some(ExportTo::ParquetObjects | ExportTo::ParquetEvents | ExportTo::Csv | ExportTo::Jsonl)
            if !text.has(TextNeeds::Objects) =>
        {
            Some("does not list single objects")
        }
        Some(ExportTo::ParquetLeaks) => Some("tells no frees"),
        Some(ExportTo::Perfetto) => Some("has no events over time"),
        _ if view == "growth" && !text.info.has_times && text.info.slices_from.is_none() => {
            Some("has no times, so growth takes two or more of them")
        }
        _ => None,
    }
}

/// Times that the command line gives to texts, in seconds since 1970.
///
/// # Errors
/// A text that is no time.
pub(crate) fn times(args: &Args) -> anyhow::Result<Vec<i64>> {
    let time = |text: &String| -> anyhow::Result<i64> {
        let seconds = text.parse().ok().or_else(|| Some(text.parse::<jiff::Timestamp>().ok()?.as_second()));
        let wrong =
            || format!("--times {text}: use seconds since 1970, or a date with its zone, as 2026-11-26T11:27:31Z");
        seconds.ok_or_else(|| anyhow::anyhow!(wrong()))
    };
    args.moment.times.iter().map(time).collect()
}

/// The query with the rows that the text lists, where the command line asks for none: slabinfo has caches and no call sites.
pub(crate) fn rows(args: &Args, trace: &Trace, query: Query) -> Query {
    let lists_caches = trace.info.text.is_some() && trace.info.input.name() == "slabinfo";
    if lists_caches && args.by.is_empty() { query.rows_by(&[GroupKey::Cache]) } else { query }
}

/// Query of one side of `compare`: rows of functions, or of what the text lists.
pub(crate) fn compared(args: &Args, trace: &Trace) -> Query {
    let input = trace.info.text.as_ref().map(|_| trace.info.input.name());
    match (args.by.first(), input) {
        (Some(GroupKey::Cache), _) | (None, Some("slabinfo")) => Query::by_cache(),
        (None | Some(GroupKey::Function), Some("allocinfo")) => Query::by(&[GroupKey::File, GroupKey::Function]),
        (None | Some(GroupKey::Function), _) => Query::by_site(),
        (Some(_), _) => Query::by(&args.by).module_rule(args.rule_of_modules()),
    }
}

/// Refuses two texts of different inputs, and a text beside a recording.
///
/// # Errors
/// One sentence.
pub(crate) fn check_sides(before: &Analysis, after: &Analysis) -> anyhow::Result<()> {
    let input = |side: &Analysis| side.info().text.as_ref().map(|_| side.info().input.name());
    let (first, second) = (input(before), input(after));
    if first == second {
        return Ok(());
    }
    let name = |input: Option<&'static str>| input.unwrap_or("recording");
    let [first, second] = [first, second].map(|side| with_article(name(side)));
    anyhow::bail!("compare: the first is {first} and the second {second}; name two of one kind")
}

/// Name of a trace's first input, for messages.
pub(crate) fn input_name(trace: &Trace) -> String {
    trace.inputs.first().map_or_else(String::new, |path| escape(path.as_os_str().as_encoded_bytes()).into_owned())
}
