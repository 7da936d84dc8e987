//! Filters on objects, and the same as the user typed them.

use clap::ArgMatches;

use super::choices::{kind, one_of};
use kmemtrace::{Branch, Context, Glob, Kind, Select, Site, SizeRange};

/// Filters on objects. Options are ANDed, the values of one option are ORed.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Only allocations by these thread ids
    #[arg(long, value_name = "PID,...", value_delimiter = ',', value_parser = pid, hide_short_help = true)]
    pub(crate) pid: Vec<i32>,
    /// Only allocations by these thread groups, which only a text of page_owner has
    #[arg(long, value_name = "TGID,...", value_delimiter = ',', value_parser = pid, hide_short_help = true)]
    pub(crate) tgid: Vec<i32>,
    /// Only allocations by these commands (* and ? allowed)
    #[arg(long, alias = "name", value_name = "COMM,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) comm: Vec<Glob>,
    /// Only call-sites in these modules (* and ? allowed); (kernel) and (unknown) as tables show them
    #[arg(long, value_name = "MODULE,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) module: Vec<Glob>,
    /// Only objects of these caches (* and ? allowed)
    #[arg(long, value_name = "CACHE,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) cache: Vec<Glob>,
    /// Only these call-sites: foo_open, foo_*, foo_open+0x3c or 0xffffffff81000100
    #[arg(long, value_name = "SITE,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) site: Vec<Site>,
    /// Only these kinds of objects
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = kind(), hide_short_help = true)]
    pub(crate) kind: Vec<Kind>,
    /// Only objects of these requested sizes: 512, 1K..4K, 1.5M.., ..64
    #[arg(long, value_name = "A..B,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) size: Vec<SizeRange>,
    /// Only allocations in these contexts of the kernel
    #[arg(long, value_name = "CONTEXT,...", value_delimiter = ',', value_parser = one_of(&Context::ALL, Context::name), hide_short_help = true)]
    pub(crate) context: Vec<Context>,
    /// Only these folders or files of the kernel's sources: fs/ext4
    #[arg(short, long, value_name = "FOLDER,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) branch: Vec<Branch>,
    /// Only objects that the kernel takes back by itself when it is short of memory, or only others: yes, no
    #[arg(long, value_name = "yes|no", value_parser = one_of(&[true, false], yes_or_no), hide_short_help = true)]
    pub(crate) reclaimable: Option<bool>,
    /// Only allocations by threads in these cgroups (* and ? allowed): /system.slice/nginx.service
    #[arg(long, value_name = "PATH,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) cgroup: Vec<Glob>,
    /// Only objects on the account of a memory cgroup, or only others: yes, no
    #[arg(long, value_name = "yes|no", value_parser = one_of(&[true, false], yes_or_no), hide_short_help = true)]
    pub(crate) accounted: Option<bool>,
}

impl Filters {
    /// Filters as the library takes them.
    pub(crate) fn select(&self) -> Select {
        let Filters {
            pid,
            tgid,
            comm,
            module,
            cache,
            site,
            kind,
            size,
            context,
            branch,
            reclaimable,
            cgroup,
            accounted,
        } = self.clone();
        Select { pid, tgid, comm, module, cache, site, kind, size, context, branch, reclaimable, cgroup, accounted }
    }
}

/// Filters and time window as the user gave them.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Options of filters and their values.
    pub(crate) filters: Vec<(&'static str, Vec<String>)>,
    /// `--time`.
    pub(crate) time: Option<String>,
    /// `--at`.
    pub(crate) at: Option<String>,
}

impl Asked {
    /// Filters and window among the arguments.
    pub(crate) fn of(matches: &ArgMatches) -> Asked {
        let given = |id: &str| -> Option<Vec<String>> {
            Some(matches.get_raw(id)?.map(|value| value.to_string_lossy().into_owned()).collect())
        };
        let filters = [
            "pid",
            "tgid",
            "comm",
            "module",
            "cache",
            "site",
            "kind",
            "size",
            "context",
            "branch",
            "reclaimable",
            "cgroup",
            "accounted",
            "threshold",
            "span",
        ];
        Asked {
            filters: filters.into_iter().filter_map(|id| Some((id, given(id)?))).collect(),
            time: given("time").map(|values| values.join(",")),
            at: given("at").map(|values| values.join(",")),
        }
    }
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn pid(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| "a thread id is a number; --comm takes names of commands".to_owned())
}
