//! Events inside a stall, with the fields of their records.

use kmemtrace_abi::event::{Action, Event, Mark, Names, Span};

use crate::documents::row::{Address, Cell, Field, Row, TakeMember};
use crate::latency::InsideEvent;

/// Event inside a stall.
#[derive(Clone, Copy, Debug)]
pub struct EventRow<'a> {
    /// The event.
    pub inside: &'a InsideEvent,
    /// Names of events and caches.
    pub names: &'a Names,
}

impl Row for EventRow<'_> {
    fn members(&self, take: &mut TakeMember<'_>) {
        let EventRow { inside: InsideEvent { event, fields }, names } = self;
        event.at.put("at", take);
        take("event", Cell::Name(names.get(event.name)));
        event.cpu.put("cpu", take);
        if let Some(context) = event.context() {
            take("context", Cell::Word(context.name()));
        }
        match fields {
            Some(fields) => take("fields", Cell::Fields(fields)),
            None => decoded(event, names, take),
        }
    }
}

/// Members of an event of an input without formats.
fn decoded(event: &Event, names: &Names, take: &mut TakeMember<'_>) {
    if event.action != Action::Other {
        Address(event.call_site).put("call_site", take);
    }
    // An event inside a stall has no room for the addresses of several objects.
    match event.objects() {
        Some(objects) => take("size", Cell::Count(objects)),
        _ if event.action != Action::Other => Address(event.address).put("address", take),
        _ => {}
    }
    if event.allocates() {
        event.requested.put("requested", take);
        event.allocated.put("allocated", take);
    }
    if matches!(event.mark, Mark::Begin(Span::Shrinker) | Mark::End(Span::Shrinker)) {
        Address(event.call_site).put("function", take);
        Address(event.address).put("shrinker", take);
    }
    if let Some(order) = event.order {
        take("order", Cell::Count(order.into()));
    }
    if let Some(gfp) = event.gfp {
        take("gfp", Cell::Count(gfp));
    }
    if let Some(node) = event.node {
        take("node", Cell::Pid(node));
    }
    if let Some(cache) = event.cache {
        take("cache", Cell::Name(names.get(cache)));
    }
    if let Some(value) = event.value.filter(|_| event.objects().is_none()) {
        let name = match event.mark {
            Mark::Throttled => "usec_delayed",
            Mark::End(Span::Shrinker) => "freed",
            Mark::Function => "duration",
            _ => "reclaimed",
        };
        take(name, Cell::Change(value));
    }
}
