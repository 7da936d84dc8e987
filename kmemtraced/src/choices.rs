//! Values of options that the sources act on. The command line itself is in `args`.

/// Events that have stacks, from `--stack`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StackWhen {
    /// All allocations.
    Alloc,
    /// All events.
    All,
    /// Allocations that a filter of the kernel takes.
    Filter(String),
}

impl std::str::FromStr for StackWhen {
    type Err = String;

    fn from_str(text: &str) -> Result<StackWhen, String> {
        match text.trim() {
            "" => Err("alloc, all, or a filter such as 'order > 0'".to_owned()),
            "alloc" => Ok(StackWhen::Alloc),
            "all" => Ok(StackWhen::All),
            filter => Ok(StackWhen::Filter(filter.to_owned())),
        }
    }
}
