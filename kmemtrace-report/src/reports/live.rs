//! `live`: the objects that are live at the end, oldest first.

use serde_json::{Map, Value, json};

use super::{Naming, address, put_name};
use crate::figures::Narrow;
use crate::pairs::{Filter, Pairing};

/// The members after the head.
pub(crate) fn live<F: Filter>(
    pairing: &Pairing<F>,
    naming: &Naming<'_>,
    top: Option<usize>,
    narrow: &Narrow,
) -> Map<String, Value> {
    let mut objects = pairing.live();
    let rest = objects.split_off(top.unwrap_or(objects.len()).min(objects.len()));
    let rows = objects.into_iter().map(|(key, at, object)| {
        let ((call_site, _), figures) = &pairing.rows[object.row as usize];
        let mut row = Map::new();
        row.insert("address".to_owned(), address(key));
        naming.put_site(&mut row, *call_site);
        row.insert("kind".to_owned(), json!(object.kind.name()));
        put_name(&mut row, "cache", object.cache.map(|name| naming.names.get(name)));
        row.insert("requested".to_owned(), json!(object.requested));
        row.insert("allocated".to_owned(), json!(object.allocated));
        row.insert("cpu".to_owned(), json!(object.cpu));
        row.insert("pid".to_owned(), json!(object.pid));
        put_name(&mut row, "comm", object.pid.and_then(|pid| naming.comms.get(&pid)).map(|comm| &**comm));
        row.insert("at".to_owned(), json!(at));
        row.insert("live_is_upper_bound".to_owned(), json!(figures.live_is_upper_bound));
        Value::Object(row)
    });
    let mut document = Map::new();
    document.insert("rows".to_owned(), rows.collect());
    if !rest.is_empty() {
        let sum = |size: fn(&crate::table::Live) -> u64| rest.iter().map(|(_, _, o)| u128::from(size(o))).sum();
        let (requested, allocated) = (narrow.u64(sum(|o| o.requested)), narrow.u64(sum(|o| o.allocated)));
        document.insert("others".to_owned(), json!({ "requested": requested, "allocated": allocated }));
        document.insert("others_count".to_owned(), json!(rest.len()));
    }
    document
}
