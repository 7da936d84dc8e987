//! Functions of call-sites, from a list of functions with their extents.

pub use crate::generate::symbols::{Function, Symbols};

impl Symbols {
    /// Function that holds the call before `call_site`, which is a return address.
    pub fn function(&self, call_site: u64) -> Option<&Function> {
        let call = call_site.checked_sub(1)?;
        self.functions.iter().find(|function| (function.start..function.end).contains(&call))
    }

    /// Name of the function with the offset of the call-site itself.
    pub fn symbol(&self, call_site: u64) -> Option<String> {
        self.function(call_site).map(|function| format!("{}+{:#x}", function.name, call_site - function.start))
    }

    /// Module of the call-site.
    pub fn module(&self, call_site: u64) -> Option<&str> {
        self.function(call_site)?.module.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_address_belongs_to_the_call_before_it() {
        let function = |start, end, name: &str, module: Option<&str>| Function {
            start,
            end,
            name: name.to_owned(),
            module: module.map(str::to_owned),
        };
        let functions = vec![function(0x100, 0x200, "open", None), function(0x200, 0x300, "close", Some("ext4"))];
        let symbols = Symbols { functions, text: None };
        assert_eq!(symbols.symbol(0x100), None);
        assert_eq!(symbols.symbol(0x101).as_deref(), Some("open+0x1"));
        assert_eq!(symbols.symbol(0x200).as_deref(), Some("open+0x100"));
        assert_eq!(symbols.module(0x200), None);
        assert_eq!(symbols.module(0x201), Some("ext4"));
        assert_eq!([symbols.symbol(0x301), symbols.symbol(0)], [None, None]);
    }
}
