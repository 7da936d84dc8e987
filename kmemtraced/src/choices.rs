//! Values of options that more than the command line acts on; the command line itself is in `args`.

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

/// Priority of the recorder's threads, from `--priority`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Priority {
    /// Readers and writers run at SCHED_FIFO 1, other threads at nice -20.
    Fifo,
    /// All threads run at nice -20.
    Nice,
    /// Threads keep the priority that the recorder was started with.
    None,
}
