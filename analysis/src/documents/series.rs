//! `growth` of a series of texts of one moment: live memory of each row at each text.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kmemtrace_abi::event::{BySpace, Kind, Space};

use super::balance::{PartRow, of_text};
use super::group::{GroupMember, GroupNames, GroupNaming, KeyValue};
use super::growth::{GrowthBody, GrowthRow, ObjectCounts, PartName, SliceFigures};
use super::names_of_texts::identity;
use super::ranked::{Listing, Others, SpaceSums};
use super::row::Rows;
use super::sums::{Ordering, Saturation, saturated};
use crate::account::figures::Figure;
use crate::account::grouping::Through;
use crate::analysis::Analysis;

/// Name of a row in all texts: values of its keys, allocator in between, kind.
type RowName = (Vec<Vec<u8>>, Through, Kind);

/// Row over the texts.
struct Course<'a> {
    names: GroupNames<'a>,
    bytes: Vec<Option<u64>>,
    objects: Vec<Option<u64>>,
}

impl Course<'_> {
    /// Figures at each text. A text without the row has none of it, and one whose row does not tell bytes has objects alone.
    fn figures(&self) -> SliceFigures {
        let all = |counts: &[Option<u64>]| counts.iter().map(|count| count.unwrap_or(0)).collect::<Vec<u64>>();
        let tells_bytes = self.bytes.iter().any(Option::is_some);
        SliceFigures {
            live_allocated: tells_bytes.then(|| all(&self.bytes)),
            live_objects: ObjectCounts((!tells_bytes).then(|| all(&self.objects))),
            ..SliceFigures::untold()
        }
    }
}

/// Rows of all texts under their common names.
fn courses<'a>(texts: &[&'a Analysis]) -> BTreeMap<RowName, Course<'a>> {
    let mut courses: BTreeMap<RowName, Course<'a>> = BTreeMap::new();
    for (slice, text) in texts.iter().enumerate() {
        let (naming, ordering) = (GroupNaming::of(text), Ordering::of(&text.info));
        let named = |key| with_stack_text(naming.names(key));
        for (key, stats) in text.paired.rows.iter().filter(|(_, stats)| !stats.is_empty()) {
            let names = named(*key);
            let course = courses.entry((identity(&names, false), key.through, key.kind)).or_insert_with(|| Course {
                names: names.clone(),
                bytes: vec![None; texts.len()],
                objects: vec![None; texts.len()],
            });
            course.names = names;
            let add = |sum: &mut Option<u64>, figure| {
                let more = ordering.figure(figure, stats).map(saturated);
                *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more)).or(*sum).or(more);
            };
            add(&mut course.bytes[slice], Figure::LiveAllocated);
            add(&mut course.objects[slice], Figure::LiveObjects);
        }
    }
    courses
}

/// Names whose stack is a text: its number says nothing in another text.
fn with_stack_text<'a>(names: GroupNames<'a>) -> GroupNames<'a> {
    let of = |member: GroupMember<'a>| match member.value {
        KeyValue::Stack(stack) => {
            GroupMember { key: member.key, value: KeyValue::Name(stack.map(|stack| stack.text().into())) }
        }
        _ => member,
    };
    GroupNames(names.0.into_iter().map(of).collect())
}

/// Times of the texts in seconds since 1970; their numbers from 0 where these are not known.
fn times(texts: &[&Analysis]) -> Vec<u64> {
    let told = texts.iter().map(|text| text.info.text.as_ref()?.taken_at).collect::<Option<Vec<i64>>>();
    match told {
        Some(times) => times.into_iter().map(|at| u64::try_from(at).unwrap_or(0)).collect(),
        None => (0..texts.len() as u64).collect(),
    }
}

/// The body of `growth` for texts, the oldest first; rows that grew most first.
pub(super) fn series<'a>(texts: &[&'a Analysis], top: Option<usize>, saturation: &Saturation) -> GrowthBody<'a> {
    let last = texts.last().copied();
    if let Some(body) = parts(texts, top) {
        return body;
    }
    let mut shown = last.map_or_else(Ordering::of_nothing, |last| Ordering::of(&last.info));
    for text in texts {
        shown.capabilities.kinds.iter_mut().for_each(|(kind, has)| *has |= text.info.capabilities.kinds[kind]);
    }
    let knows_sums = |space: Space| texts.iter().all(|text| Ordering::of(&text.info).knows_sums(space));
    let mut totals: BySpace<SliceFigures> = BySpace::from_fn(|_| SliceFigures::untold());
    let mut rows = Vec::new();
    for ((names, _, kind), course) in courses(texts) {
        let figures = course.figures();
        if knows_sums(kind.space()) {
            totals[kind.space()].add(&figures, saturation);
        }
        rows.push((Reverse(figures.grown()), names, kind, course.names, figures));
    }
    rows.sort_by(|a, b| (a.0, &a.1, a.2).cmp(&(b.0, &b.1, b.2)));
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let others = Others::of_spaces(rest.len(), shown, |space| {
        let mut sum = SliceFigures::untold();
        let of_space = rest.iter().filter(|(_, _, kind, ..)| kind.space() == space);
        if knows_sums(space) {
            of_space.for_each(|(.., figures)| sum.add(figures, saturation));
        }
        sum
    });
    let rows: Vec<GrowthRow<'a>> = rows
        .into_iter()
        .map(|(_, _, kind, names, slices)| GrowthRow {
            names,
            part: PartName::default(),
            kind: Some(kind),
            slices,
            reclaimable: None,
            reclaimable_from: None,
        })
        .collect();
    let template = rows.first().cloned();
    let from = last.and_then(|last| last.info.text.as_ref()?.slices_from);
    GrowthBody {
        slices: times(texts),
        slices_from: from.map(kmemtrace_abi::trace::SlicesFrom::name),
        totals: SpaceSums::new("total", shown, |space: Space| totals[space].clone()),
        listing: Listing::new(Rows::of(rows, Clone::clone), others, template),
    }
}

/// The body of texts of counters: rows are parts of memory, which do not add up. `None` for other texts.
fn parts<'a>(texts: &[&'a Analysis], top: Option<usize>) -> Option<GrowthBody<'a>> {
    let all = texts.iter().map(|text| of_text::parts(text)).collect::<Option<Vec<_>>>()?;
    let mut names: Vec<&'static str> = Vec::new();
    for part in all.iter().flatten().map(|row| row.part) {
        if !names.contains(&part) {
            names.push(part);
        }
    }
    let mut rows: Vec<GrowthRow<'a>> = Vec::new();
    for part in names {
        let bytes = |rows: &Vec<PartRow<'_>>| rows.iter().find(|row| row.part == part).and_then(|row| row.bytes);
        let live: Vec<Option<u64>> = all.iter().map(bytes).collect();
        let is_told = live.iter().any(Option::is_some);
        let live_allocated = is_told.then(|| live.iter().map(|bytes| bytes.unwrap_or(0)).collect());
        rows.push(GrowthRow {
            names: GroupNames(Vec::new()),
            part: PartName(Some(part)),
            kind: None,
            slices: SliceFigures { live_allocated, ..SliceFigures::untold() },
            reclaimable: None,
            reclaimable_from: None,
        });
    }
    rows.sort_by_key(|row| Reverse(row.slices.grown()));
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let others = (!rest.is_empty()).then(|| Others::one(rest.len(), SliceFigures::untold()));
    let from = texts.last().and_then(|last| last.info.text.as_ref()?.slices_from);
    let template = rows.first().cloned();
    Some(GrowthBody {
        slices: times(texts),
        slices_from: from.map(kmemtrace_abi::trace::SlicesFrom::name),
        totals: SpaceSums::null("total", SliceFigures::untold()),
        listing: Listing::new(Rows::of(rows, Clone::clone), others, template),
    })
}
