//! `folded`: call stacks, a line each, the outermost frame first, as flame graph tools read them; of an allocation without a stack its
//! call-site: `module;function;inlined N`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kmemtrace::documents::group::{GroupMember, KeyValue};
use kmemtrace::documents::naming::CallSite;
use kmemtrace::documents::sums::PrintedStats;
use kmemtrace::documents::{self, Body};
use kmemtrace::{GroupKey, Kind, Query, Shape, SiteOwner, Space};

use super::frames::{self, frame, frame_of_module};
use super::job::Job;
use crate::args::Weight;
use crate::terminal::output::Output;

/// First frame of call-sites in the kernel itself, and of those whose code is not known.
const KERNEL: &str = "kernel";
const UNKNOWN: &str = "unknown";

/// Writes the stacks of a trace, weighted by what was asked for, else by wasted bytes, other spaces than slab by live bytes.
pub(super) fn folded(job: &Job<'_>, weight: Option<Weight>) -> anyhow::Result<u8> {
    let mut out = job.output()?;
    let analysis = job.analyse(Query::by_site().with_stacks(true))?;
    frames::find_places(&analysis)?;
    let space = analysis.shown_space();
    let is_cumulative = space == Space::Slab && analysis.info().text.is_none();
    let weight = weight.unwrap_or(if is_cumulative { Weight::Wasted } else { Weight::Live });
    // Call-sites of one function are one line.
    let mut stacks = BTreeMap::<String, u128>::new();
    let mut add = |names: &[GroupMember<'_>], kind: Kind, stats: &PrintedStats| {
        let weight = weight_of(stats, weight);
        if weight > 0 && kind.space() == space {
            *stacks.entry(stack(&frames::frames(&analysis, names), names)).or_default() += u128::from(weight);
        }
    };
    match &documents::sites(&analysis, &Shape::default()).body {
        Body::Sites(rows) => rows.rows.iter().for_each(|row| {
            add(&[GroupMember { key: GroupKey::Site, value: KeyValue::Site(row.site) }], row.kind, &row.stats);
        }),
        Body::Groups(rows) => rows.rows.iter().for_each(|row| add(&row.names.0, row.kind, &row.stats)),
        _ => anyhow::bail!("folded: rows have another form"),
    }
    let written = write(&stacks, &mut out);
    out.finish(written)?;
    Ok(job.end(&analysis))
}

fn write(stacks: &BTreeMap<String, u128>, out: &mut Output) -> io::Result<()> {
    stacks.iter().try_for_each(|(stack, weight)| writeln!(out, "{stack} {weight}"))
}

fn weight_of(stats: &PrintedStats, weight: Weight) -> u64 {
    let weight = match weight {
        Weight::Allocs => stats.allocs,
        Weight::Allocated => stats.allocated,
        Weight::Wasted => stats.wasted,
        // A text may tell objects alone.
        Weight::Live => stats.live_allocated.or(stats.live_objects),
    };
    weight.unwrap_or(0)
}

/// Line of a row: the functions of its stack, or module and functions of its call-site, the outermost first.
fn stack(frames: &[CallSite<'_>], names: &[GroupMember<'_>]) -> String {
    match frames {
        [site] if !frames::has_stack(names) => {
            let module = match (site.module.as_deref(), site.owner) {
                (Some(module), _) => frame(module),
                (None, SiteOwner::Unknown) if site.place.0.frames.is_empty() => UNKNOWN.to_owned(),
                (None, _) => KERNEL.to_owned(),
            };
            format!("{module};{}", functions(site, None).join(";"))
        }
        frames => {
            let functions = frames.iter().rev().flat_map(|site| functions(site, site.module.as_deref()));
            functions.collect::<Vec<_>>().join(";")
        }
    }
}

/// Functions of a return address, the outermost first.
fn functions(site: &CallSite<'_>, module: Option<&[u8]>) -> Vec<String> {
    let frames = &site.place.0.frames;
    match frames.is_empty() {
        true if site.call_site.0 == 0 => vec![frame(b"(no call-site)")],
        true => vec![match site.owner {
            SiteOwner::Init { .. } => frame(&site.text()),
            _ => site.call_site.to_string(),
        }],
        false => frames.iter().rev().map(|inner| frame_of_module(&inner.function, module)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kmemtrace::documents::naming::SitePlace;
    use kmemtrace::documents::row::Address;
    use kmemtrace::documents::stack_frame::RowStack;
    use kmemtrace::{Frame, Place};

    use super::*;

    #[test]
    fn a_stack_is_one_line_whatever_its_names_are() {
        let frame = |function: &[u8], inlined| Frame { function: function.into(), file: None, line: None, inlined };
        let site = |module: Option<&'static [u8]>, frames: Vec<Frame>, address| CallSite {
            call_site: Address(address),
            symbol: None,
            module: module.map(Into::into),
            owner: match (module, frames.is_empty()) {
                (Some(module), _) => SiteOwner::Module(module),
                (None, true) => SiteOwner::Unknown,
                (None, false) => SiteOwner::Kernel,
            },
            place: SitePlace(Arc::new(Place { frames, ..Place::default() })),
        };
        let alone = |site: CallSite<'_>| stack(&[site], &[]);
        let inlined = || vec![frame(b"kmalloc", true), frame(b"foo_open", false)];
        assert_eq!(alone(site(Some(b"foo"), inlined(), 1)), "foo;foo_open;kmalloc");
        assert_eq!(alone(site(None, vec![], 0xc0de)), "unknown;0xc0de");
        assert_eq!(alone(site(None, vec![], 0)), "unknown;(no\\x20call-site)");
        assert_eq!(alone(site(None, vec![frame(b"kfree", false)], 1)), "kernel;kfree");
        let init = SiteOwner::Init { module: b"foo", offset: Some(0x19) };
        let init = CallSite { owner: init, ..site(Some(b"foo"), vec![], 0xc0de) };
        assert_eq!(alone(init), "foo;[foo]\\x20init+0x19");
        let hostile = || vec![frame(b"a;b c\n7\xff 8\\", false)];
        assert_eq!(alone(site(Some(b"m 1"), hostile(), 1)), r"m\x201;a\x3bb\x20c\x0a7\xff\x208\\");
        let frames = [site(Some(b"foo"), inlined(), 1), site(None, vec![], 0xc0de), site(Some(b"m 1"), hostile(), 1)];
        let value = KeyValue::Stack(Some(RowStack { number: 1, frames: [].into() }));
        let names = [GroupMember { key: GroupKey::Stack, value }];
        let want = r"a\x3bb\x20c\x0a7\xff\x208\\_[m\x201];0xc0de;foo_open_[foo];kmalloc_[foo]";
        assert_eq!(stack(&frames, &names), want);
    }
}
