//! Screen of `summary`: sums per kind, call-sites to look at, findings, and the next commands.

use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::leaks::{LeakGroup, LeaksBody};
use kmemtrace::documents::row::Rows;
use kmemtrace::documents::sites::SiteRow;
use kmemtrace::documents::summary::{FindingCounts, Summary, TotalRow};
use kmemtrace::documents::sums::PrintedStats;
use kmemtrace::{Figure, Kind, Space};
use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::{cells, figures, heading, leaks};
use crate::columns::column::{Column, Holds, Shows};
use crate::columns::{KINDS, TOP_CHURN, TOP_LIVE, TOP_LIVE_WASTE};
use crate::of_text;
use crate::render::grid::Grid;
use crate::render::grid::cell::{Cell, Notes};
use crate::terminal::screen::{self, Paint};

/// Share of the live bytes from which the next command is about one call-site, in percent.
const MANY: u64 = 10;
/// Commands that are suggested at most.
const SUGGESTIONS: usize = 3;

/// Parts of the screen that are written: fewer where it has less room.
#[derive(Clone, Copy)]
struct Layout {
    /// Rows of each list of call-sites.
    rows: [usize; 3],
    /// Explanations of the marks.
    has_notes: bool,
    /// Lines between the table of kinds and the first list.
    has_facts: bool,
    has_findings: bool,
    /// Number of commands to try next; what they show is left out where it needs a line of its own.
    commands: usize,
    is_brief: bool,
}

/// Rows of the lists on a screen with room for all of them.
const LIST_ROWS: [usize; 3] = [5, 3, 3];

impl Layout {
    /// All layouts, the largest first: lists are left out from the end, then what is around the first one, whose first row goes last.
    fn all() -> Vec<Layout> {
        let [first, second, _] = LIST_ROWS;
        let mut part = Layout {
            rows: LIST_ROWS,
            has_notes: true,
            has_facts: true,
            has_findings: true,
            commands: SUGGESTIONS,
            is_brief: false,
        };
        let mut all = vec![part, Layout { rows: [first, second, 0], ..part }, Layout { rows: [first, 0, 0], ..part }];
        part.is_brief = true;
        let leave_out: [fn(&mut Layout); 5] = [
            |_| {},
            |layout| layout.has_notes = false,
            |layout| layout.has_facts = false,
            |layout| layout.has_findings = false,
            |layout| layout.commands = 1,
        ];
        for leave_out in leave_out {
            leave_out(&mut part);
            all.extend((1..=first).rev().map(|rows| Layout { rows: [rows, 0, 0], ..part }));
        }
        all.push(Layout { rows: [0; 3], ..part });
        all
    }
}

/// Writes the screen of `summary`, in so many lines where the destination has no more.
pub(crate) fn summary(
    head: &Head<'_>,
    view: &Summary<'_>,
    options: &TableOptions,
    room: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    if view.events.total > 0 && view.events.used == 0 {
        const NO_OBJECTS: &str = "The recording has no slab or page events. What it has of reclaim, compaction and shrinkers is in \
                                  kmemtrace-report latency, shrinkers, stalls and waits. To see who allocates memory, record slab \
                                  and page events: kmemtraced -e slab,page, or trace-cmd record -e kmem.";
        return heading::text(NO_OBJECTS, options, out);
    }
    if head.trace.text.is_some() {
        return of_one_moment(head, view, options, out);
    }
    let mut text = Vec::new();
    for layout in Layout::all() {
        text.clear();
        laid_out(head, view, layout, options, &mut text)?;
        let fits = |room| screen::lines_of(&text, options.screen.width.unwrap_or(usize::MAX)) <= room;
        if room.is_none_or(fits) {
            break;
        }
    }
    out.write_all(&text)
}

/// Writes the parts of the screen that a layout has.
fn laid_out(
    head: &Head<'_>,
    view: &Summary<'_>,
    layout: Layout,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut notes = kinds(view, options, out)?;
    if layout.has_facts {
        writeln!(out)?;
        facts(head, view, options, out)?;
        reclaimable(view, options, out)?;
    }
    if view.rows.iter().all(|row| row.stats.0.is_none_or(|stats| stats.is_empty())) {
        writeln!(out)?;
        return heading::empty("no allocation", options, out);
    }
    if let Some(group) = suspects(view).next() {
        writeln!(out)?;
        leaks::line(group, options, out)?;
        let others = suspects(view).count() - 1;
        if others > 0 {
            let more = cells::counted(others as u64, "more suspect");
            heading::indented(&format!("  kmemtrace-report leaks{} lists {more}", trace(options)), 2, options, out)?;
        }
    }
    let total = objects(view);
    let mut left_out = Vec::new();
    for (list, rows) in lists(view).into_iter().zip(layout.rows) {
        let Some(found) = list.rows.as_ref().filter(|found| !found.is_empty()) else { continue };
        if rows == 0 {
            left_out.push((list.about, list.command));
            continue;
        }
        writeln!(out)?;
        heading::title(&list.title, options, out)?;
        notes |= top(found, (&list, view, rows), &total, options, out)?;
    }
    if !layout.has_facts {
        left_out.push(("peak and frees", "summary | cat"));
    }
    if layout.has_findings {
        findings(&view.findings, options, out)?;
    } else {
        left_out.push(("mismatches", "mismatch"));
    }
    if layout.has_notes {
        heading::footer(notes, options, out)?;
    }
    next(&further(head, view, notes, options), layout, options, out)?;
    not_shown(&left_out, options, out)
}

/// Writes the parts that the screen has no room for, each with the words that show it.
fn not_shown(left_out: &[(&str, &str)], options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    if left_out.is_empty() {
        return Ok(());
    }
    let parts = left_out.iter().map(|(about, shown_by)| format!("{shown_by} ({about})"));
    let text = format!("Not shown; views with more: {}", parts.collect::<Vec<_>>().join(", "));
    heading::indented(&text, 2, options, out)
}

/// Writes the summary of a text of one moment: what it tells of live memory, and nothing of the past.
fn of_one_moment(head: &Head<'_>, view: &Summary<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    if let Some(parts) = &view.balance {
        super::balance::parts(parts, options, out)?;
        return views_of_text(head, options, out);
    }
    let mut notes = kinds(view, options, out)?;
    if view.rows.iter().all(|row| row.stats.0.is_none_or(|stats| stats.is_empty())) {
        writeln!(out)?;
        return heading::empty("no allocation", options, out);
    }
    if head.trace.input == "slabinfo" {
        return views_of_text(head, options, out);
    }
    let total = objects(view);
    let [live, ..] = lists(view);
    if let Some(rows) = live.rows.as_ref().filter(|rows| !rows.is_empty()) {
        writeln!(out)?;
        heading::title("Most memory, by call-site", options, out)?;
        notes |= top(rows, (&live, view, LIST_ROWS[0]), &total, options, out)?;
    }
    heading::footer(notes, options, out)?;
    views_of_text(head, options, out)
}

/// Writes which views a text has.
fn views_of_text(head: &Head<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let views = head.trace.text.map_or(Vec::new(), |info| of_text::views(head.trace.input, info));
    let Some((first, others)) = views.split_first() else { return Ok(()) };
    writeln!(out)?;
    heading::text(&format!("Next: kmemtrace-report {first} {}", options.title), options, out)?;
    heading::text(&format!("Views of such a text, too: {}", others.join(", ")), options, out)
}

/// Short list of call-sites.
struct ShortList<'v, 'a> {
    title: String,
    rows: &'v Option<Rows<'a, SiteRow<'a>>>,
    columns: &'static [Column<'static>; 6],
    /// What it has, and the words of the command line that show more of it.
    about: &'static str,
    command: &'static str,
}

/// Sums of `kmalloc` and `cache`; of nothing where the input does not tell them.
fn objects(view: &Summary<'_>) -> PrintedStats {
    view.total.stats.0.clone().unwrap_or_default()
}

/// Lists of `summary`, the live ones first.
fn lists<'v, 'a>(view: &'v Summary<'a>) -> [ShortList<'v, 'a>; 3] {
    // Memory that the kernel takes back by itself ranks behind the rest, where it is known.
    let is_known = view.leaks.as_ref().is_some_and(|leaks| leaks.by_site.values().any(|[_, back]| *back > 0));
    let order = if is_known { "; what the kernel takes back comes last" } else { "" };
    let live = ShortList {
        title: format!("Most bytes live now, by call-site{order}"),
        rows: &view.top_live,
        columns: &TOP_LIVE,
        about: "live bytes by call site",
        command: "live",
    };
    let live_waste = ShortList {
        title: "Most bytes wasted by objects live now".to_owned(),
        rows: &view.top_live_waste,
        columns: &TOP_LIVE_WASTE,
        about: "waste of live objects",
        command: "sites --sort live_wasted",
    };
    let churn = ShortList {
        title: "Churn: bytes wasted over all allocations (cumulative, most of them freed again)".to_owned(),
        rows: &view.top_sites,
        columns: &TOP_CHURN,
        about: "churn",
        command: "sites",
    };
    [live, live_waste, churn]
}

/// Writes a short list of call-sites; `total` are the sums that they are shares of.
fn top(
    rows: &Rows<'_, SiteRow<'_>>,
    (list, view, limit): (&ShortList<'_, '_>, &Summary<'_>, usize),
    total: &PrintedStats,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<Notes> {
    let row = |row: SiteRow<'_>| -> Vec<Cell> {
        // Only slab objects are a part of the total.
        let is_part = row.kind.space() == Space::Slab;
        let share_of = |figure| (row.stats.get(figure).unwrap_or(0), total.get(figure).unwrap_or(0));
        let (mut cells, mut bar) = (Vec::new(), Cell::default());
        for column in list.columns {
            cells.push(match (column.shows, column.holds) {
                (Shows::ShareOfAll(_), _) if !is_part => "-".into(),
                (Shows::ShareOfAll(figure), _) => {
                    let (part, whole) = share_of(figure);
                    bar = cells::bar(part, whole, &options.screen);
                    cells::percent(part, whole).into()
                }
                (_, Holds::Bar) => std::mem::take(&mut bar),
                (_, Holds::Site) => cells::site_through(&row.site, row.kind, &row.text),
                (_, Holds::Path) => cells::source(&row.site.place),
                (Shows::Figure(Figure::LiveAllocated), _) => {
                    let cell = figures::cell(column, &row.stats, row.kind.name(), options);
                    cells::reclaimed(Some(is_taken_back(view, &row)), cell)
                }
                _ => figures::cell(column, &row.stats, row.kind.name(), options),
            });
        }
        cells
    };
    let grid = Grid { columns: list.columns, ranked: Some(list.columns[1].title), screen: &options.screen };
    grid.write(|| rows.iter().take(limit).map(row), out)
}

/// Writes the table of kinds: the total counts `kmalloc` and `cache`, because these are made of pages.
fn kinds(view: &Summary<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<Notes> {
    let name = |kind: &str| match kind {
        "total" => "slab total".to_owned(),
        "tag" => "tag (sum of lines)".to_owned(),
        "vmalloc" => "vmalloc (address space)".to_owned(),
        kind => kind.to_owned(),
    };
    let row = |TotalRow { kind, stats }: TotalRow| -> Vec<Cell> {
        let first = if kind == "total" { Cell::painted(name(kind), Paint::Strong) } else { name(kind).into() };
        let is_told = !(options.lacks_pages && kind == Kind::Pages.name());
        let figures = KINDS[1..].iter().map(|column| match &stats.0 {
            Some(stats) if is_told => figures::cell(column, stats, kind, options),
            _ => "-".into(),
        });
        std::iter::once(first).chain(figures).collect()
    };
    // The total stands below its parts, pages below the total.
    let rank = |row: &TotalRow| ["kmalloc", "cache", "total"].iter().position(|&kind| kind == row.kind).unwrap_or(3);
    // Kinds that a text of one moment does not tell are left out, and the total of both where one of them alone is told.
    let told = view.rows.iter().filter(|row| row.stats.0.is_some() && ["kmalloc", "cache"].contains(&row.kind)).count();
    let is_shown =
        |row: &TotalRow| !options.screen.is_of_text || row.stats.0.is_some() && (row.kind != "total" || told > 1);
    let mut rows: Vec<TotalRow> = view.rows.iter().filter(is_shown).collect();
    rows.sort_by_key(rank);
    let grid = Grid { columns: &KINDS, ranked: None, screen: &options.screen };
    grid.write(|| rows.iter().cloned().map(row), out)
}

/// Writes the lines under the table of kinds.
fn facts(head: &Head<'_>, view: &Summary<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let (total, pairs, findings) = (view.total.stats.0.as_ref(), &view.pairs, &view.findings);
    let mut line = |what: &str, value: String| heading::indented(&format!("  {what:<20} {value}"), 23, options, out);
    if let Some(command) = head.trace.command {
        line("recorded by", escape(command.join(" ").as_bytes()).into_owned())?;
    }
    if options.lacks_pages {
        line("not recorded", "pages: kmemtraced -e slab,page".to_owned())?;
    }
    let of_total = |figure: fn(&PrintedStats) -> Option<u64>| {
        let is_bound = total.is_some_and(|total| total.live_is_upper_bound);
        cells::upper(is_bound, cells::bytes(total.and_then(figure), options)).text
    };
    let peak = of_total(|total| total.peak_live_allocated);
    // Pages stand beside the total, of which they are no part.
    let pages = view.kinds.told(Kind::Pages).filter(|pages| !pages.is_empty());
    if let Some(pages) = pages {
        let live = of_total(|total| total.live_allocated);
        line("live", live + &pages_beside(pages, pages.live_allocated, pages.live_pages, options))?;
    }
    let at = cells::moment(&head.trace, view.total.peak_at);
    let beside = pages.map(|pages| pages_beside(pages, pages.peak_live_allocated, pages.peak_live_pages, options));
    line("peak", format!("{peak} at {at}{}", beside.unwrap_or_default()))?;
    let crossed = cells::percent(pairs.cross_cpu, pairs.paired.unwrap_or(0));
    let cross_node = pairs.cross_node.map_or(String::new(), |n| format!("; {} on another node", cells::count(n)));
    let (cross_cpu, paired) = (cells::count(pairs.cross_cpu), cells::counted(pairs.paired, "pair"));
    line("freed on other CPU", format!("{crossed} ({cross_cpu} of {paired}{cross_node})"))?;
    line(
        "frees not paired",
        format!(
            "{} older than the recording; {} freed before, and no allocation since; {} of NULL",
            cells::count(findings.free_without_alloc.count),
            cells::count(findings.free_after_free.count),
            cells::count(findings.null_free.count)
        ),
    )?;
    if let Some(failed) = findings.failed_alloc.count.filter(|&failed| failed > 0) {
        line("failed", cells::counted(failed, "allocation"))?;
    }
    match own(view, options) {
        Some((what, value)) => line(what, value),
        None => Ok(()),
    }
}

/// Writes how much of the live memory of slabs the kernel takes back by itself, where leaks were looked for.
fn reclaimable(view: &Summary<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let Some(leaks) = &view.leaks else { return Ok(()) };
    let slabs = leaks.by_site.iter().filter(|((_, kind), _)| kind.space() == Space::Slab);
    let [stays, back] = slabs.fold([0u64; 2], |sums, (_, bytes)| [0, 1].map(|at| sums[at].saturating_add(bytes[at])));
    if back == 0 {
        return Ok(());
    }
    let [stays, back] = [stays, back].map(|bytes| cells::bytes(bytes, options));
    let what = "live, by reclaim";
    heading::indented(&format!("  {what:<20} {stays} stays; {back} the kernel takes back by itself"), 23, options, out)
}

/// Groups of leaks that are no caches.
fn suspects<'v, 'a>(view: &'v Summary<'a>) -> impl Iterator<Item = &'v LeakGroup<'a>> {
    let groups = view.leaks.iter().flat_map(|leaks| &leaks.groups);
    groups.filter(|group| matches!(group.verdict, Some("leak" | "maybe")))
}

/// True where the kernel takes back all live objects of the row by itself.
fn is_taken_back(view: &Summary<'_>, row: &SiteRow<'_>) -> bool {
    let of_site = |leaks: &LeaksBody<'_>| leaks.by_site.get(&(row.site.call_site.0, row.kind)).copied();
    view.leaks.as_deref().and_then(of_site).is_some_and(|[stays, back]| stays == 0 && back > 0)
}

/// Bytes and number of pages, behind the bytes of `kmalloc` and `cache`.
fn pages_beside(
    stats: &PrintedStats,
    bytes: impl Into<Option<u64>>,
    pages: Option<u64>,
    options: &TableOptions,
) -> String {
    let bytes = cells::upper(stats.live_is_upper_bound, cells::bytes(bytes, options)).text;
    let pages = pages.map_or(String::new(), |pages| format!(" ({})", cells::counted(pages, "page")));
    format!("; pages apart {bytes}{pages}")
}

/// Line on the recorder's own allocations, if any.
fn own(view: &Summary<'_>, options: &TableOptions) -> Option<(&'static str, String)> {
    let own = view.own.as_ref().filter(|own| own.allocs > 0)?;
    let allocated = cells::bytes(own.allocated, options);
    let before = if options.is_filtered() { ", before filters" } else { "" };
    let of = format!("{} ({allocated}) of the recorder itself{before}", cells::counted(own.allocs, "allocation"));
    Some(match (options.shows_own, options.is_filtered()) {
        (true, false) => ("counted above", of),
        (true, true) => ("not left out", of),
        (false, _) => ("left out", of + " (--own shows them)"),
    })
}

/// Findings that nothing known explains.
fn errors(findings: &FindingCounts) -> Option<u64> {
    sum([findings.kind_mismatch.rest(), findings.cache_mismatch.rest()])
}

/// Sum of numbers, known if each of them is.
fn sum(numbers: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    numbers.into_iter().try_fold(0u64, |sum, number| Some(sum.saturating_add(number?)))
}

/// Writes the findings by severity.
fn findings(findings: &FindingCounts, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let errors = errors(findings);
    let suspects = sum([findings.kind_mismatch.suspect, findings.cache_mismatch.suspect]);
    let normal = sum([
        findings.kind_mismatch_legal.count,
        findings.free_after_free.count,
        findings.inferred_free.count,
        findings.kind_mismatch.unseen,
        findings.cache_mismatch.unseen,
        findings.short_alloc.count,
    ]);
    let shown = |n: Option<u64>, noun: &str, paint| {
        let text = cells::counted(n, noun);
        if n > Some(0) { options.screen.paint(paint, &text) } else { text }
    };
    writeln!(out)?;
    let (errors, suspects) = (shown(errors, "error", Paint::Bad), shown(suspects, "suspect", Paint::Warning));
    writeln!(
        out,
        "{} {errors}, {suspects}, {} normal",
        options.screen.paint(Paint::Strong, "Mismatches"),
        cells::count(normal)
    )
}

/// Writes commands to try next.
fn next(
    further: &[(&'static str, &'static str)],
    layout: Layout,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let line = |(command, about): &(&'static str, &'static str)| {
        // Another recording has another name.
        let trace = if command.starts_with("kmemtraced") { String::new() } else { trace(options) };
        (format!("{command}{trace}"), *about)
    };
    let commands: Vec<(String, &str)> = further.iter().take(layout.commands).map(line).collect();
    let wide = commands.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    writeln!(out)?;
    heading::title("Next", options, out)?;
    for (command, about) in commands {
        let line = format!("  {command:<wide$}   {about}");
        let is_long = options.screen.width.is_some_and(|width| line.chars().count() > width);
        if !is_long {
            heading::text(&line, options, out)?;
            continue;
        }
        heading::indented(&format!("  {command}"), 4, options, out)?;
        if !layout.is_brief {
            heading::indented(&format!("      {about}"), 6, options, out)?;
        }
    }
    Ok(())
}

/// Commands that look further, the most useful first, each with what it shows.
fn further(
    head: &Head<'_>,
    view: &Summary<'_>,
    notes: Notes,
    options: &TableOptions,
) -> Vec<(&'static str, &'static str)> {
    let has_stacks = options.has_stacks;
    let total = objects(view);
    // A bound is no reason to suspect a call-site: its objects may be gone.
    let is_sure = |row: &SiteRow<'_>| row.kind.space() == Space::Slab && !row.stats.live_is_upper_bound;
    let top_live = view.top_live.as_ref().and_then(|rows| rows.iter().find(is_sure));
    let top_live = top_live.and_then(|row| row.stats.live_allocated).unwrap_or(0);
    let is_many = |part: u64, whole: u64| part > 0 && u128::from(part) * 100 >= u128::from(whole) * u128::from(MANY);
    let has_slabs = total.allocs > Some(0);
    let has_pages = view.kinds.told(Kind::Pages).is_some_and(|pages| !pages.is_empty());
    let is_of_pages = has_pages && !has_slabs;
    let wastes = is_many(total.wasted.unwrap_or(0), total.allocated.unwrap_or(0));
    let crosses = is_many(view.pairs.cross_cpu.unwrap_or(0), view.pairs.paired.unwrap_or(0));
    let is_live = is_many(top_live, total.live_allocated.unwrap_or(0));
    let found = [
        (suspects(view).next().is_some(), "kmemtrace-report leaks", "who holds more and more memory"),
        (head.completeness.verdict != "complete", "kmemtrace-check", "where events are missing"),
        (options.has_reclaim, "kmemtrace-report stalls", "who waited for memory, the longest first"),
        (view.failed_without_fallback > 0, "kmemtrace-report failed", "allocations that failed, and their call sites"),
        (errors(&view.findings) > Some(0), "kmemtrace-report mismatch", "both call sites of each error"),
        (is_of_pages, "kmemtrace-report uses", "what the pages are for"),
        (has_stacks && !is_of_pages, "kmemtrace-report live --by stack", "live memory by its callers"),
        (has_stacks, "kmemtrace-report tree --by stack", "callers as a tree, from system calls on"),
        (is_of_pages, "kmemtrace-report tasks", "threads that hold the pages"),
        (is_of_pages && !has_stacks, "kmemtraced -e page --stack", "record again with the callers of page allocations"),
        (!has_stacks && notes.has_wrappers, "kmemtraced --stack", "record again with the callers behind ~"),
        (is_live, "kmemtrace-report live", "call sites of the memory that is live"),
        (is_live, "kmemtrace-report live --by comm,site", "the commands that allocated it"),
        (wastes, "kmemtrace-report sites", "the call sites that waste most"),
        (crosses, "kmemtrace-report cross", "call sites whose objects are freed on another CPU"),
    ];
    let commands: Vec<_> =
        found.into_iter().filter(|(holds, ..)| *holds).map(|(_, command, about)| (command, about)).collect();
    if commands.is_empty() { vec![("kmemtrace-report sites", "figures of every call site")] } else { commands }
}

/// Trace as a word of a command line: empty for the default one.
fn trace(options: &TableOptions) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%=".contains(c);
    match options.title.as_str() {
        "kmemtrace.data" => String::new(),
        title if title.chars().all(is_plain) && !title.starts_with('-') => format!(" {title}"),
        _ => " DIR".to_owned(),
    }
}
