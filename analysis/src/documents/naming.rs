//! Names of call-sites, caches and commands in a view.

use std::collections::HashMap;

use kmemtrace_abi::event::Names;

use super::row::{Address, Name, row};
use crate::analysis::Analysis;
use crate::names::kallsyms::Symbolizer;

row! {
    /// A call-site and its names.
    pub struct CallSite<'a> {
        /// Return address of the call.
        pub call_site: Address,
        /// `function+0x1f`.
        pub symbol: Name<'a>,
        /// Module of the function; `None` for the kernel itself.
        pub module: Name<'a>,
    }
}

/// Names of an analysis.
#[derive(Clone, Copy)]
pub(super) struct Naming<'a> {
    symbols: &'a Symbolizer,
    names: &'a Names,
    comms: &'a HashMap<i32, Box<[u8]>>,
}

impl<'a> Naming<'a> {
    pub(super) fn of(analysis: &'a Analysis) -> Naming<'a> {
        let names = &analysis.names;
        Naming { symbols: names.symbolizer(), names: &names.trace_names, comms: &names.comms }
    }

    /// `symbol+0xoffset` of a call-site.
    pub(super) fn symbol(&self, call_site: Option<u64>) -> Name<'a> {
        call_site.and_then(|site| self.symbols.lookup(site)).map(|symbol| symbol.text().into())
    }

    /// A call-site with symbol and module.
    pub(super) fn call_site(&self, call_site: u64) -> CallSite<'a> {
        let symbol = self.symbols.lookup(call_site);
        CallSite {
            call_site: Address(call_site),
            symbol: symbol.map(|symbol| symbol.text().into()),
            module: symbol.and_then(|symbol| symbol.module).map(Into::into),
        }
    }

    /// Name with this number, which is one more than its index; 0 is none.
    pub(super) fn numbered(&self, number: u64) -> Option<&'a [u8]> {
        self.names.at(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    /// Command name of a thread.
    pub(super) fn comm(&self, pid: i32) -> Name<'a> {
        self.comms.get(&pid).map(|comm| (&**comm).into())
    }
}
