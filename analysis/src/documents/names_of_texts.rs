//! Names of rows that are the same in several recordings or texts, whose addresses are not.

use super::group::{GroupNames, KeyValue};
use super::row::{Cell, Field, TakeMember};
use super::stack_frame::RowStack;

/// Values of a row's keys as bytes: equal for equal rows of two texts. `is_rough`: offsets in functions and lines of source differ
/// between builds, and are left out.
pub(super) fn identity(names: &GroupNames<'_>, is_rough: bool) -> Vec<Vec<u8>> {
    names.0.iter().flat_map(|member| parts(&member.value, is_rough)).collect()
}

fn parts(value: &KeyValue<'_>, is_rough: bool) -> Vec<Vec<u8>> {
    let name = |name: &Option<std::borrow::Cow<'_, [u8]>>| match name {
        Some(name) => [b"=", &**name].concat(),
        None => Vec::new(),
    };
    match value {
        KeyValue::Site(site) => {
            let source = site.place.0.source.as_ref().filter(|source| source.line.is_some());
            let place = source.map(|source| {
                let line = source.line.filter(|_| !is_rough).unwrap_or(0);
                [source.file.as_deref().unwrap_or_default(), format!(":{line:010}").as_bytes()].concat()
            });
            let is_told = site.call_site.told().filter(|_| site.symbol.is_none());
            let address = is_told.map(|address| address.0.to_be_bytes().to_vec());
            let symbol = site.symbol.as_ref().map(|symbol| if is_rough { function(symbol) } else { symbol.to_vec() });
            vec![symbol.or(address).unwrap_or_else(|| site.text()), name(&site.module), place.unwrap_or_default()]
        }
        KeyValue::Stack(stack) => vec![stack.as_ref().map(|stack| text(stack, is_rough)).unwrap_or_default()],
        KeyValue::Source(source) => {
            vec![source.as_ref().map(|source| format!("{source:?}").into_bytes()).unwrap_or_default()]
        }
        KeyValue::Function { function, module } => vec![name(function), name(module)],
        KeyValue::Task { pid, comm } => vec![number(pid.map(i64::from)), name(comm)],
        KeyValue::Cache { cache, .. } => vec![name(cache)],
        KeyValue::Module { module, is_known } => vec![name(module), vec![u8::from(*is_known)]],
        KeyValue::Gfp { gfp, .. } => vec![gfp.map(|gfp| gfp.to_be_bytes().to_vec()).unwrap_or_default()],
        KeyValue::Name(value) => vec![name(value)],
        KeyValue::Id(id) => vec![number(id.map(i64::from))],
        KeyValue::Number(n) => vec![number(n.and_then(|n| i64::try_from(n).ok()))],
        KeyValue::Bytes(n) => vec![number(i64::try_from(*n).ok())],
        KeyValue::Flag(flag) => vec![number(flag.map(i64::from))],
        KeyValue::Word(word) => vec![word.unwrap_or_default().into()],
    }
}

/// A number whose bytes sort as it does.
fn number(n: Option<i64>) -> Vec<u8> {
    n.map(|n| (n.cast_unsigned() ^ (1 << 63)).to_be_bytes().to_vec()).unwrap_or_default()
}

/// Function of `name+0x1f`.
fn function(symbol: &[u8]) -> Vec<u8> {
    let end = symbol.windows(3).rposition(|part| part == b"+0x").unwrap_or(symbol.len());
    symbol[..end].to_vec()
}

fn text(stack: &RowStack<'_>, is_rough: bool) -> Vec<u8> {
    if is_rough { frames(stack).join(&b'\n') } else { stack.text() }
}

/// Functions of a stack with their modules, without offsets.
fn frames(stack: &RowStack<'_>) -> Vec<Box<[u8]>> {
    let of_frame = |frame: &super::stack_frame::StackFrame<'_>| {
        let symbol = frame.symbol.as_ref().map(|symbol| function(symbol)).unwrap_or_else(|| frame.text());
        match &frame.module {
            Some(module) => [&symbol[..], b" [", module, b"]"].concat().into_boxed_slice(),
            None => symbol.into_boxed_slice(),
        }
    };
    stack.frames.iter().map(of_frame).collect()
}

/// Names of a row of two inputs, as `compare` shows them: its stack is a list of functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonNames<'a> {
    names: GroupNames<'a>,
    stack: Option<Vec<Box<[u8]>>>,
}

impl<'a> CommonNames<'a> {
    pub(super) fn of(names: GroupNames<'a>) -> CommonNames<'a> {
        let stack = names.0.iter().find_map(|member| match &member.value {
            KeyValue::Stack(stack) => Some(stack.as_ref().map(frames).unwrap_or_default()),
            _ => None,
        });
        let others = names.0.into_iter().filter(|member| !matches!(member.value, KeyValue::Stack(_)));
        CommonNames { names: GroupNames(others.collect()), stack }
    }

    /// Names of no row.
    pub(super) fn none() -> CommonNames<'a> {
        CommonNames { names: GroupNames(Vec::new()), stack: None }
    }

    /// Names without the stack.
    pub fn names(&self) -> &GroupNames<'a> {
        &self.names
    }

    /// Functions of the stack, the innermost first.
    pub fn stack(&self) -> Option<&[Box<[u8]>]> {
        self.stack.as_deref()
    }
}

impl Field for CommonNames<'_> {
    fn put(&self, name: &'static str, take: &mut TakeMember<'_>) {
        self.names.put(name, take);
        if let Some(stack) = &self.stack {
            take("stack", Cell::Names(stack));
        }
    }
}
