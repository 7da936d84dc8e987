//! `live`: the objects that are live at the end, oldest first.

use serde_json::{Map, Value, json};

use super::{Naming, address, put_name};
use crate::classes::Class;
use crate::decode::NO_PID;
use crate::figures::Narrow;
use crate::pairs::{Live, Paired};

/// The objects that have rows, and the others.
fn split(paired: &Paired, top: Option<usize>) -> (&[Live], &[Live]) {
    paired.live.split_at(top.unwrap_or(usize::MAX).min(paired.live.len()))
}

/// A row for each object: there may be millions, so they are made one by one.
pub(crate) fn rows<'a>(
    paired: &'a Paired,
    naming: &'a Naming<'a>,
    top: Option<usize>,
) -> impl Iterator<Item = Value> + 'a {
    split(paired, top).0.iter().map(|object| {
        let class = paired.class(object);
        let ((call_site, _), figures) = &paired.rows[class.row as usize];
        let pid = Some(object.birth.pid).filter(|&pid| pid != NO_PID).map(u32::cast_signed);
        let mut row = Map::new();
        row.insert("address".to_owned(), address(object.address));
        naming.put_site(&mut row, *call_site);
        row.insert("kind".to_owned(), json!(class.kind.name()));
        put_name(&mut row, "cache", class.cache.checked_sub(1).and_then(|index| naming.names.at(index as usize)));
        row.insert("requested".to_owned(), json!(class.requested));
        row.insert("allocated".to_owned(), json!(class.allocated));
        row.insert("cpu".to_owned(), json!(object.cpu));
        row.insert("pid".to_owned(), json!(pid));
        put_name(&mut row, "comm", pid.and_then(|pid| naming.comms.get(&pid)).map(|comm| &**comm));
        row.insert("at".to_owned(), json!(object.birth.at));
        row.insert("live_is_upper_bound".to_owned(), json!(figures.live_is_upper_bound));
        Value::Object(row)
    })
}

/// The members after the head, without the rows.
pub(crate) fn live(paired: &Paired, top: Option<usize>, narrow: &Narrow) -> Map<String, Value> {
    let (_, rest) = split(paired, top);
    let mut document = Map::new();
    document.insert("rows".to_owned(), Value::Null);
    if !rest.is_empty() {
        let sum = |size: fn(&Class) -> u64| rest.iter().map(|object| u128::from(size(paired.class(object)))).sum();
        let (requested, allocated) = (narrow.u64(sum(|c| c.requested)), narrow.u64(sum(|c| c.allocated)));
        document.insert("others".to_owned(), json!({ "requested": requested, "allocated": allocated }));
        document.insert("others_count".to_owned(), json!(rest.len()));
    }
    document
}
