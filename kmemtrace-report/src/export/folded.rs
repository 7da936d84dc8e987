//! `folded`: stacks of call-sites, a line each, as flame graph tools read them: `module;function;inlined N`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kmemtrace::documents::naming::CallSite;
use kmemtrace::documents::sites::SiteRow;
use kmemtrace::documents::{self, Body};
use kmemtrace::{Kind, Query, Shape};
use kmemtrace_abi::text::escape::escape;

use super::job::Job;
use crate::args::Weight;
use crate::terminal::output::Output;

/// First frame of call-sites in the kernel itself.
const KERNEL: &str = "kernel";

/// Writes the stacks of a trace.
pub(super) fn folded(job: &Job<'_>, weight: Weight) -> anyhow::Result<u8> {
    let mut out = job.output()?;
    let analysis = job.analyse(Query::by_site())?;
    let document = documents::sites(&analysis, &Shape::default());
    let Body::Sites(sites) = &document.body else { anyhow::bail!("folded: rows have another form") };
    // Call-sites of one function are one line.
    let mut stacks = BTreeMap::<String, u128>::new();
    for row in sites.rows.iter().filter(|row| (row.kind == Kind::Pages) == job.has_pages()) {
        let weight = weight_of(&row, weight);
        if weight > 0 {
            *stacks.entry(stack(&row.site)).or_default() += u128::from(weight);
        }
    }
    let written = write(&stacks, &mut out);
    out.finish(written)?;
    Ok(job.end(&analysis))
}

fn write(stacks: &BTreeMap<String, u128>, out: &mut Output) -> io::Result<()> {
    stacks.iter().try_for_each(|(stack, weight)| writeln!(out, "{stack} {weight}"))
}

fn weight_of(row: &SiteRow<'_>, weight: Weight) -> u64 {
    match weight {
        Weight::Allocs => row.stats.allocs,
        Weight::Allocated => row.stats.allocated,
        Weight::Wasted => row.stats.wasted,
        Weight::Live => row.stats.live_allocated,
    }
}

/// Frames of a call-site, the outermost first.
fn stack(site: &CallSite<'_>) -> String {
    let module = site.module.as_deref().map_or(KERNEL.to_owned(), frame);
    let frames = &site.place.0.frames;
    let functions: Vec<String> = match frames.is_empty() {
        true if site.call_site.0 == 0 => vec![frame(b"(no call-site)")],
        true => vec![site.call_site.to_string()],
        false => frames.iter().rev().map(|inner| frame(&inner.function)).collect(),
    };
    format!("{module};{}", functions.join(";"))
}

/// A name as a frame: escaped, and without the characters that part frames and weights.
fn frame(name: &[u8]) -> String {
    escape(name).replace(';', "\\x3b").replace(' ', "\\x20")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kmemtrace::documents::naming::SitePlace;
    use kmemtrace::documents::row::Address;
    use kmemtrace::{Frame, Place};

    use super::*;

    #[test]
    fn a_stack_is_one_line_whatever_its_names_are() {
        let frame = |function: &[u8], inlined| Frame { function: function.into(), file: None, line: None, inlined };
        let site = |module: Option<&'static [u8]>, frames: Vec<Frame>, address| CallSite {
            call_site: Address(address),
            symbol: None,
            module: module.map(Into::into),
            place: SitePlace(Arc::new(Place { frames, ..Place::default() })),
        };
        let inlined = vec![frame(b"kmalloc", true), frame(b"foo_open", false)];
        assert_eq!(stack(&site(Some(b"foo"), inlined, 1)), "foo;foo_open;kmalloc");
        assert_eq!(stack(&site(None, vec![], 0xc0de)), "kernel;0xc0de");
        assert_eq!(stack(&site(None, vec![], 0)), "kernel;(no\\x20call-site)");
        let hostile = vec![frame(b"a;b c\n7\xff 8\\", false)];
        assert_eq!(stack(&site(Some(b"m 1"), hostile, 1)), r"m\x201;a\x3bb\x20c\x0a7\xff\x208\\");
    }
}
