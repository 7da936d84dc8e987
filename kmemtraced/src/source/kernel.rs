//! Features of the kernel that older releases lack, by the release that brought them (`kernel/trace/` of the releases named).

use std::fmt::{self, Display};

use anyhow::bail;
use kmemtrace_abi::kernel::release::Release;
use kmemtrace_abi::text::escape::escape;

/// A release that brought something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(u32, u32);

/// Instances with a buffer and events of their own.
pub(crate) const INSTANCES: Since = Since(3, 10);
/// Event filters that belong to one instance. Before, the filter of an event is that of all buffers.
pub(crate) const OWN_FILTERS: Since = Since(3, 14);
/// Options that belong to one instance. Before, those of the top-level buffer hold for all.
pub(crate) const OWN_OPTIONS: Since = Since(4, 4);
/// `set_event_pid` together with the option `event-fork`, which adds the children of its tasks.
pub(crate) const EVENT_FORK: Since = Since(4, 8);
/// Events of per-CPU memory (`mm/percpu.c`).
pub(crate) const PERCPU_EVENTS: Since = Since(4, 13);
/// Stacks of a trigger in the buffer of the trigger's instance. Some older kernels have the patch, too.
pub(crate) const OWN_TRIGGER_STACKS: Since = Since(5, 18);
/// `kfree_rcu` that ends without an event of `kfree` (`kernel/rcu/tree.c`).
pub(crate) const DEFERRED_WITHOUT_EVENT: Since = Since(5, 7);
/// Events of areas of kernel addresses (`mm/vmalloc.c`).
pub(crate) const VMALLOC_EVENTS: Since = Since(6, 2);
/// Return probes that have the arguments of the function (`kernel/trace/trace_probe.c`).
pub(crate) const ARGUMENTS_AT_RETURN: Since = Since(6, 9);

impl Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Since {
    /// True if `release` is older. A text that is no release counts as new.
    pub(crate) fn is_after(self, release: &str) -> bool {
        Release::parse(release).is_some_and(|release| release < Release(self.0, self.1, 0))
    }
}

/// Release of the running kernel, for messages.
pub(crate) fn release() -> String {
    escape(rustix::system::uname().release().to_bytes()).into_owned()
}

/// Refuses the filter of the option `option` where it would be everybody's.
pub(crate) fn check_own_filters(release: &str, option: &str) -> anyhow::Result<()> {
    if OWN_FILTERS.is_after(release) {
        bail!(
            "{option}: before Linux {OWN_FILTERS} a filter holds for all users of an event, and this is {release}: \
             leave it out, and select rows in the report"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_would_be_everybodys_is_refused() {
        let error = format!("{:#}", check_own_filters("3.10.0-1160.el7.x86_64", "--filter").unwrap_err());
        assert!(error.starts_with("--filter: before Linux 3.14 a filter holds for all users"), "{error}");
        assert!(error.contains("this is 3.10.0-1160.el7.x86_64: leave it out"), "{error}");
        for release in ["3.14.0", "4.4.302", "5.10.0-32-amd64", "7.3.4", "unknown", ""] {
            assert!(check_own_filters(release, "--filter").is_ok(), "{release}");
        }
        assert!(OWN_OPTIONS.is_after("4.3.9") && !OWN_OPTIONS.is_after("4.4"));
        assert!(OWN_TRIGGER_STACKS.is_after("5.17.9-1-amd64") && !OWN_TRIGGER_STACKS.is_after("5.18-rc1"));
        assert!(INSTANCES.is_after("2.6.32-754.el6") && INSTANCES.is_after("3.9.11"));
    }
}
