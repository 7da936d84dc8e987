//! Frames of call stacks as folded stacks and tables of objects have them, and the stacks of rows.

use std::collections::BTreeSet;

use kmemtrace::Analysis;
use kmemtrace::documents::group::{GroupMember, KeyValue};
use kmemtrace::documents::naming::{self, CallSite};
use kmemtrace_abi::text::escape::escape;

/// Call-sites of a row, the innermost first: the frames of its stack, else its call-site.
pub(super) fn frames<'a>(analysis: &'a Analysis, names: &[GroupMember<'a>]) -> Vec<CallSite<'a>> {
    let stack =
        names.iter().find_map(|name| if let KeyValue::Stack(stack) = &name.value { stack.as_ref() } else { None });
    match stack {
        Some(stack) => stack.frames.iter().map(|frame| naming::call_site(analysis, frame.address)).collect(),
        None => names.iter().filter_map(site_of).cloned().collect(),
    }
}

/// Finds the places of all frames of stacks.
pub(super) fn find_places(analysis: &Analysis) -> anyhow::Result<()> {
    let addresses: BTreeSet<u64> = analysis.stacks().flatten().copied().collect();
    analysis.find_places(&addresses.into_iter().collect::<Vec<_>>())?;
    Ok(())
}

/// True for a row whose allocations have a stack.
pub(super) fn has_stack(names: &[GroupMember<'_>]) -> bool {
    names.iter().any(|name| matches!(name.value, KeyValue::Stack(Some(_))))
}

fn site_of<'n, 'a>(name: &'n GroupMember<'a>) -> Option<&'n CallSite<'a>> {
    if let KeyValue::Site(site) = &name.value { Some(site) } else { None }
}

/// A name as a frame: escaped, and without the characters that part frames and weights.
pub(super) fn frame(name: &[u8]) -> String {
    escape(name).replace(';', "\\x3b").replace(' ', "\\x20")
}

/// A function as a frame, with its module behind it.
pub(super) fn frame_of_module(function: &[u8], module: Option<&[u8]>) -> String {
    let module = module.map_or(String::new(), |module| format!("_[{}]", frame(module)));
    format!("{}{module}", frame(function))
}
