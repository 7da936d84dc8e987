//! Site, kind and allocator in between of an entry of a text of one moment, each found once for each different stack.
//!
//! The site is the first frame of the stack in none of the sections of tracing, allocators, slabs and vmalloc, the last frame where all
//! are in them.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Action, Event, Kind, Names, Space};
use kmemtrace_abi::listed::Listed;
use kmemtrace_abi::stack::StackId;
use kmemtrace_abi::trace::NO_SITE;

use crate::account::classes::Classes;
use crate::account::group_reader::GroupFacts;
use crate::account::grouping::Through;
use crate::account::stacks::StackNumber;
use crate::names::frame_list::FrameClass;
use crate::names::wrappers::plain_name;
use kmemtrace_abi::kernel::kmalloc::is_kmalloc;
use kmemtrace_abi::text::glob::Glob;

/// Site of an entry, and what the frames tell that its stack passes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextSite {
    pub(crate) stack: StackNumber,
    /// Frames before the site, which the stack passes over, of pages; 0 for none.
    pub(crate) passed: StackNumber,
    /// Call site; [`NO_SITE`] without one.
    pub(crate) site: u64,
    pub(crate) through: Through,
    pub(crate) kind: Kind,
    /// The text gives the kind, or a function does that the stack passes over.
    is_kind_told: bool,
}

/// Function that a stack passes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    section: FrameClass,
    /// A large kmalloc, whose pages are one caller's.
    is_large: bool,
    /// Kind of the objects that the function hands out; `None` for one that does not say what.
    kind: Option<Kind>,
}

/// Kinds of objects by the functions that hand them out; the first pattern counts.
const KINDS: [(&str, Kind); 8] = [
    ("kmem_cache_alloc*", Kind::Cache),
    ("pcpu_alloc*", Kind::Percpu),
    ("kvmalloc*", Kind::Kmalloc),
    ("__kvmalloc*", Kind::Kmalloc),
    ("*vmalloc*", Kind::Vmalloc),
    ("*kmalloc*", Kind::Kmalloc),
    ("vzalloc*", Kind::Vmalloc),
    ("krealloc*", Kind::Kmalloc),
];

/// Functions whose pages are one caller's although they stand among those of slabs.
const LARGE: [&str; 2] = ["*kmalloc_large*", "kmalloc_order*"];

/// Reader of the sites of a text's entries.
#[derive(Clone)]
pub(crate) struct TextSites<'a> {
    facts: GroupFacts<'a>,
    classes: &'a Classes,
    kinds: Vec<(Glob, Kind)>,
    large: Vec<Glob>,
    /// Frames that are passed over, by address.
    passed: HashMap<u64, Option<Passed>, RandomState>,
    /// Answers by stack, call site that the text gives, and kind that it gives.
    found: HashMap<(Option<StackId>, u64, Option<Kind>), TextSite, RandomState>,
}

impl<'a> TextSites<'a> {
    pub(crate) fn new(facts: GroupFacts<'a>, classes: &'a Classes) -> TextSites<'a> {
        TextSites {
            facts,
            classes,
            kinds: KINDS.iter().map(|(pattern, kind)| (Glob::new(pattern), *kind)).collect(),
            large: LARGE.iter().map(|pattern| Glob::new(pattern)).collect(),
            passed: HashMap::default(),
            found: HashMap::default(),
        }
    }

    /// Site and kind of an entry's event.
    pub(crate) fn read(&mut self, event: &Event, listed: &Listed, names: &Names) -> TextSite {
        let told_site = if listed.tells_site { event.call_site } else { 0 };
        let told_kind = event.kind().filter(|_| !listed.kind_is_of_stack);
        let found = match self.found.get(&(event.stack, told_site, told_kind)) {
            Some(found) => *found,
            None => {
                let found = self.find(event.stack, told_site, told_kind, names);
                self.found.insert((event.stack, told_site, told_kind), found);
                found
            }
        };
        match event.cache {
            Some(cache) if !found.is_kind_told => {
                let kind = if is_kmalloc(names.get(cache)) { Kind::Kmalloc } else { Kind::Cache };
                TextSite { kind, ..found }
            }
            _ => found,
        }
    }

    fn find(&mut self, stack: Option<StackId>, told_site: u64, told_kind: Option<Kind>, names: &Names) -> TextSite {
        let frames = stack.map_or(&[][..], |stack| names.stacks.get(stack));
        let told_place = frames.iter().position(|&frame| frame == told_site && told_site != 0);
        let passed: Vec<Passed> = frames.iter().map_while(|&frame| self.passed_over(frame)).collect();
        let known_kind = told_kind.or_else(|| passed.iter().find_map(|frame| frame.kind));
        let kind = known_kind.unwrap_or(Kind::Kmalloc);
        let (from, through) = match told_site {
            // All frames are passed over: the outermost one is the site, and no longer one of these.
            0 if passed.len() == frames.len() && !frames.is_empty() => {
                (frames.len() - 1, through(&passed[..passed.len() - 1]))
            }
            0 => (passed.len(), through(&passed)),
            _ => (told_place.unwrap_or(0), Through::Nothing),
        };
        let site = if told_site != 0 { told_site } else { frames.get(from).copied().unwrap_or(NO_SITE) };
        let is_pages = kind.space() == Space::Pages;
        TextSite {
            stack: self.classes.stack(frames, from),
            passed: if is_pages { self.classes.passed(frames, from) } else { 0 },
            site,
            through: if is_pages { through } else { Through::Nothing },
            kind,
            is_kind_told: known_kind.is_some(),
        }
    }

    fn passed_over(&mut self, frame: u64) -> Option<Passed> {
        if let Some(known) = self.passed.get(&frame) {
            return *known;
        }
        let symbol = self.facts.symbolizer().and_then(|symbols| symbols.lookup(frame));
        let passed = symbol.and_then(|symbol| {
            let section = self.facts.places.options.frames.section(symbol.name)?;
            let name = plain_name(symbol.name);
            let kind = self.kinds.iter().find(|(pattern, _)| pattern.matches(name)).map(|(_, kind)| *kind);
            Some(Passed { section, is_large: self.large.iter().any(|pattern| pattern.matches(name)), kind })
        });
        self.passed.insert(frame, passed);
        passed
    }
}

/// Allocator that a stack passes over: that of the innermost frame of one, unless the memory is a large kmalloc's.
fn through(passed: &[Passed]) -> Through {
    if passed.iter().any(|frame| frame.is_large) {
        return Through::Nothing;
    }
    let of = |frame: &Passed| match frame.section {
        FrameClass::Slabs => Some(Through::Slab),
        FrameClass::Vmalloc => Some(Through::Vmalloc),
        FrameClass::Tracing | FrameClass::Allocator | FrameClass::Reclaim => None,
    };
    passed.iter().find_map(of).unwrap_or_default()
}

/// The event with the site and the kind that its stack tells.
pub(crate) fn with_site(event: Event, site: &TextSite) -> Event {
    Event { call_site: site.site, action: Action::Alloc(site.kind), ..event }
}
