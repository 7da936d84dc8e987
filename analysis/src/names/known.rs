//! Names that are kept from a trace while its events are read, and afterwards.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use crate::names::kallsyms::Symbolizer;
use crate::names::place::NamesReport;
use crate::names::resolver::Places;

/// Names of symbols, caches and commands, kept from the trace.
#[derive(Debug)]
pub(crate) struct KnownNames {
    /// Text of `/proc/kallsyms`; empty once it is indexed.
    pub(crate) kallsyms: Mutex<Vec<u8>>,
    pub(crate) modules: Vec<u8>,
    /// Command names by thread id.
    pub(crate) comms: HashMap<i32, Box<[u8]>>,
    /// Names of caches and events.
    pub(crate) trace_names: kmemtrace_abi::event::Names,
    pub(crate) symbolizer: OnceLock<Symbolizer>,
    /// Set once the symbols have named something that a document shows, and not only told allocators in stacks.
    pub(crate) has_named: OnceLock<()>,
    /// Places of call-sites in the kernel's sources.
    pub(crate) places: Places,
}

impl KnownNames {
    /// Origin of the names of call-sites.
    pub(crate) fn report(&self) -> NamesReport {
        self.places.report(self.symbolizer.get(), self.has_named.get().is_some())
    }

    /// Name with this number, which is one more than its index; 0 is none.
    pub(crate) fn numbered(&self, number: u64) -> Option<&[u8]> {
        self.trace_names.at(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    /// The symbols of the trace, to name what a document shows.
    pub(crate) fn symbolizer(&self) -> &Symbolizer {
        self.has_named.get_or_init(|| ());
        self.symbols()
    }

    /// The symbols of the trace, indexed when they are first asked for.
    pub(crate) fn symbols(&self) -> &Symbolizer {
        self.symbolizer.get_or_init(|| {
            let kallsyms = self.kallsyms.lock().map(|mut text| std::mem::take(&mut *text)).unwrap_or_default();
            Symbolizer::new(kallsyms, &self.modules)
        })
    }
}
