//! `live`: the objects that are live at the end, oldest first.

use serde_json::{Map, Value, json};

use super::row::{Cell, Row, Rows};
use super::{Document, Naming};
use crate::account::classes::Class;
use crate::account::stats::Narrow;
use crate::order::pair_event::NO_PID;
use crate::pairing::pairs::{Live, PairingResult};

/// The document without the head.
pub(super) fn live<'a>(
    paired: &'a PairingResult,
    naming: Naming<'a>,
    top: Option<usize>,
    narrow: &Narrow,
) -> Document<'a> {
    let (listed, rest) = paired.live.split_at(top.unwrap_or(usize::MAX).min(paired.live.len()));
    let mut members = Map::new();
    members.insert("rows".to_owned(), Value::Null);
    if !rest.is_empty() {
        let sum = |size: fn(&Class) -> u64| rest.iter().map(|object| u128::from(size(paired.class(object)))).sum();
        let (requested, allocated) = (narrow.u64(sum(|c| c.requested)), narrow.u64(sum(|c| c.allocated)));
        members.insert("others".to_owned(), json!({ "requested": requested, "allocated": allocated }));
        members.insert("others_count".to_owned(), json!(rest.len()));
    }
    Document::new(members, Rows::new(listed.len(), move |index| row(paired, naming, &listed[index])))
}

fn row<'a>(paired: &'a PairingResult, naming: Naming<'a>, object: &Live) -> Row<'a> {
    let class = paired.class(object);
    let ((call_site, _), figures) = &paired.rows[class.row as usize];
    let pid = Some(object.alloc_info.pid).filter(|&pid| pid != NO_PID).map(u32::cast_signed);
    let cache = class.cache.checked_sub(1).and_then(|index| naming.names.at(index as usize));
    let mut row = Row::default();
    row.put("address", Cell::Address(object.address));
    naming.put_site(&mut row, *call_site);
    row.put("kind", Cell::Word(class.kind.name()));
    row.put("cache", Cell::name(cache));
    row.put("requested", Cell::Count(class.requested));
    row.put("allocated", Cell::Count(class.allocated));
    row.put("cpu", Cell::Count(object.cpu.into()));
    row.put("pid", pid.map_or(Cell::Null, Cell::Pid));
    row.put("comm", Cell::name(pid.and_then(|pid| naming.comms.get(&pid)).map(|comm| &**comm)));
    row.put("at", Cell::Count(object.alloc_info.at));
    row.put("live_is_upper_bound", Cell::Bool(figures.live_is_upper_bound));
    row
}
