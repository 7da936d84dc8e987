//! Tables for people: the verdict first, bytes before ratios, sums that add up.

mod about;
mod balance;
mod caches;
pub(crate) mod cells;
mod compare;
mod cross;
pub(crate) mod events;
mod failed;
mod figures;
mod groups;
mod growth;
pub(crate) mod heading;
mod holders;
mod latency;
pub(crate) mod leaks;
mod live;
mod mismatch;
mod objects;
pub(crate) mod options;
mod sites;
pub(crate) mod stalls;
#[cfg(feature = "full")]
pub(crate) mod static_sizes;
mod summary;
mod tree;

use std::io::{self, Write};

use kmemtrace::documents::{Body, Document};

use super::account;
use options::TableOptions;

use crate::terminal::screen::Screen;

/// Table below that of `caches --cache`: a title, and rows of the objects of these caches.
pub(crate) type Below<'d> = (&'static str, Document<'d>);

/// Writes what stands below a table: the other names of caches, and further tables.
pub(crate) fn below(
    document: &Document<'_>,
    below: &[Below<'_>],
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if let (Body::Caches(view), false) = (&document.body, below.is_empty()) {
        caches::merged(view, options, out)?;
    }
    for (title, document) in below {
        writeln!(out)?;
        heading::title(title, options, out)?;
        match &document.body {
            Body::Sites(listing) => sites::sites(listing, options, out)?,
            Body::Groups(listing) => groups::groups(&document.head, listing, options, out)?,
            _ => {}
        }
    }
    Ok(())
}

/// Writes the heading, then the view's tables.
pub(crate) fn table(document: &Document<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let Document { head, body } = document;
    if let Body::Account(view) = body {
        // Scripts read this text, and its form has no place for a verdict.
        return account::account(view, out);
    }
    let screen = Screen { is_of_text: head.trace.text.is_some(), ..options.screen };
    let options = &TableOptions { screen, ..options.clone() };
    let mut above = Vec::new();
    heading::heading(head, body, options, &mut above)?;
    out.write_all(&above)?;
    match body {
        Body::Summary(view) => summary::summary(head, view, options, screen.room_below(&above), out),
        Body::Sites(listing) => sites::sites(listing, options, out),
        Body::Caches(view) => caches::caches(view, options, out),
        Body::Balance(view) => balance::balance(head, view, options, out),
        Body::Failed(view) => failed::failed(head, view, options, out),
        Body::Mismatch(listing) => mismatch::mismatch(head, listing, options, out),
        Body::Groups(listing) => groups::groups(head, listing, options, out),
        Body::LiveGroups(listing) => live::live(head, listing, options, out),
        Body::Leaks(view) => leaks::leaks(head, view, options, out),
        Body::Live(listing) => objects::objects(head, listing, options, out),
        Body::Growth(view) => growth::growth(head, view, options, out),
        Body::Compare(view) => compare::compare(view, options, out),
        Body::Cross(view) => cross::cross(view, options, out),
        Body::Tree(view) => tree::tree(view, options, out),
        Body::Holders(view) => holders::holders(head, view, options, out),
        Body::Latency(view) => latency::latency(view, options, out),
        Body::Shrinkers(listing) => latency::shrinkers(listing, options, out),
        Body::Stalls(view) => stalls::stalls(head, view, options, out),
        Body::Waits(view) => latency::waits(view, options, out),
        Body::Functions(listing) => latency::functions(listing, options, out),
        Body::Account(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use kmemtrace::documents::head::{CompletenessMembers, Filters, QueryMembers, ToldKeys, TraceMembers};
    use kmemtrace::documents::naming::CallSite;
    use kmemtrace::documents::ranked::{Listing, Others};
    use kmemtrace::documents::row::{Address, Rows};
    use kmemtrace::documents::sites::SiteRow;
    use kmemtrace::documents::sums::{PrintedStats, ToldStats};
    use kmemtrace::documents::text_members::TextMembers;
    use kmemtrace::{Kind, SiteOwner, documents};
    use kmemtrace_abi::clock::{Clock, OrderKey};

    use crate::columns::column::Holds;
    use crate::views::{VIEWS, View};

    /// Completeness with this verdict, loss and number of gaps.
    fn completeness(verdict: &'static str, lost: u64, gaps: u64) -> CompletenessMembers<'static> {
        CompletenessMembers {
            verdict,
            lost_events: Some(lost),
            gaps,
            truncated_files: &[],
            missing_cpus: &[],
            inferred_frees: Some(0),
            frees_without_alloc: Some(0),
            skipped: None,
            saturated: false,
        }
    }

    fn printed(completeness: CompletenessMembers<'_>) -> String {
        let trace = TraceMembers {
            input: "kmemtrace",
            form: None,
            source: None,
            kernel: None,
            arch: None,
            endian: None,
            word_bytes: None,
            page_bytes: None,
            page_bytes_from: None,
            addresses: Some("raw"),
            clock: None,
            keys: Clock::default(),
            cpus: Some(1),
            order: OrderKey::Time,
            one_moment: false,
            first: 0,
            last: 9,
            told_keys: ToldKeys { first: Some(0), last: Some(9) },
            own_threads: None,
            scope: Some("system"),
            deferred: None,
            deferred_from: None,
            filtered: None,
            host: None,
            boot: None,
            recording: None,
            begun: None,
            ended: None,
            command: None,
            symbols: Some("trace"),
            lacks_symbols: None,
            shows_vmalloc: false,
            text: None,
            since_boot: None,
        };
        let stats = PrintedStats {
            allocs: Some(2),
            live_allocated: Some(1024),
            live_is_upper_bound: true,
            ..PrintedStats::default()
        };
        let others = stats.clone();
        let rows = Rows::new(1, move |_| {
            let symbol = Some(b"a\x1b\xff+0x1"[..].into());
            let (call_site, place, owner) = (Address(0xc0de), Default::default(), SiteOwner::Kernel);
            let site = CallSite { call_site, symbol, module: None, place, owner };
            SiteRow { site, kind: Kind::Kmalloc, stats: stats.clone(), text: TextMembers::default() }
        });
        let query = QueryMembers { filters: Filters(&[]), time: None, by: vec!["site"] };
        let others = Some(Others::one(407, ToldStats(Some(others))));
        let document = Document {
            head: documents::Head {
                schema: "kmemtrace.sites/1".to_owned(),
                completeness,
                trace,
                names: Default::default(),
                query,
            },
            body: Body::Sites(Listing::new(rows, others, None)),
        };
        let mut out = Vec::new();
        table(&document, &TableOptions::plain(None), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_verdict_comes_first_and_bounds_are_marked() {
        let text = printed(CompletenessMembers { missing_cpus: &[2], ..completeness("lossy", 1204, 3) });
        assert!(text.starts_with("LOSSY   1,204 lost in 3 gaps   no file for CPU: 2\n"), "{text}");
        assert!(text.contains("<=1.00 KiB"), "{text}");
        let others = text.lines().find(|line| line.contains("(407 others)")).expect("an others row");
        assert!(others.contains(" - "), "peaks do not add up: {others}");
        assert!(text.contains(r" a\x1b\xff+0x1"), "a name is escaped once: {text}");
        let files = ["cpu2.out\u{1b}".to_owned()];
        let cut = printed(CompletenessMembers { truncated_files: &files, ..completeness("truncated", 0, 1) });
        assert!(cut.starts_with("TRUNCATED   0 lost, 1 gap   cut: cpu2.out\\x1b\n"), "{cut}");
    }

    #[test]
    fn every_column_of_a_view_is_explained_and_can_be_told_from_the_others() {
        for View { name: view, columns: parts, .. } in VIEWS {
            for (part, columns) in *parts {
                for column in *columns {
                    assert!(column.meaning.ends_with('.'), "{view} {part}: {}", column.title);
                    let same = columns.iter().filter(|other| other.title == column.title).count();
                    assert_eq!(same, 1, "{view} {part}: {}", column.title);
                }
                let mut sites = columns.iter().filter(|column| column.holds == Holds::Site);
                assert!(sites.all(|column| column.drop == 0), "{view} {part}: a call-site is never dropped");
            }
        }
    }
}
