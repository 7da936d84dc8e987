//! Queries: rows, filters, time window, threads and limits. No command line here.

pub(crate) mod filter;
pub(crate) mod select;
pub(crate) mod time;
pub(crate) mod window;

use crate::account::classes::MAX_SIZED_CLASSES;
use crate::account::grouping::{GroupKey, Grouping, ModuleRule};
use crate::account::over_time::OverTimeRequest;
use crate::account::row_paths::PathForm;
use crate::names::options::NameOptions;
use crate::progress::Notes;
use crate::query::select::Select;
use crate::query::time::{Moment, TimeWindow};

/// Size of a trace, in bytes, from which an index pays, unless the caller says another.
pub const PAYS_FROM: u64 = 64 << 20;

/// A query, built step by step; [`Query::run`] reads a trace and answers.
///
/// The constructors choose the rows, the other methods narrow the events or set limits. A query is a value: it can be kept, cloned
/// and run on several traces.
///
/// ```no_run
/// use kmemtrace::{Glob, Query, Select, Trace};
///
/// let select = Select { module: vec![Glob::new("ext4")], ..Select::default() };
/// let query = Query::by_site().select(select).time(Some("10%,90%".parse()?)).threads(2);
/// let analysis = query.run(&mut Trace::open(&["kmemtrace.data".into()])?)?;
/// for row in analysis.rows() {
///     let symbol = row.call_site.and_then(|site| analysis.symbolizer().lookup(site));
///     let name = symbol.map_or("?".into(), |symbol| String::from_utf8_lossy(symbol.name).into_owned());
///     println!("{name} wasted {} bytes", row.stats.wasted);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Query {
    pub(crate) grouping: Grouping,
    pub(crate) matrix: bool,
    pub(crate) lists_live: bool,
    /// Keys of the rows of leaks, none for threads and call-sites, where a query is about leaks: births are counted.
    pub(crate) leaks: Option<Vec<GroupKey>>,
    /// Rows of leaks are chosen by this; all objects are counted.
    pub(crate) chosen: Select,
    pub(crate) marks_reclaim: bool,
    /// Single events and objects come with their cgroups, and with whether the kernel takes them back.
    pub(crate) tells_owners: bool,
    pub(crate) splits_stacks: bool,
    pub(crate) over_time: OverTimeRequest,
    /// The nodes whose peaks are counted are places of call-sites: areas where it is true, else folders.
    pub(crate) place_nodes: Option<bool>,
    pub(crate) free_sites: bool,
    pub(crate) learns_caches: bool,
    pub(crate) module_rule: ModuleRule,
    pub(crate) shows_own: bool,
    pub(crate) select: Select,
    pub(crate) given: Vec<(&'static str, Vec<String>)>,
    pub(crate) window: Option<TimeWindow>,
    pub(crate) at_peak: bool,
    /// Pages have a peak only where they are selected.
    pub(crate) slab_peak: bool,
    pub(crate) threads: Option<usize>,
    pub(crate) max_memory: Option<u64>,
    pub(crate) uses_index: bool,
    pub(crate) index_from: u64,
    pub(crate) notes: Notes,
    pub(crate) names: NameOptions,
    pub(crate) has_static: bool,
    pub(crate) window_events: Option<usize>,
    pub(crate) sized_classes: u32,
    /// Of allocations only failed ones make rows.
    pub(crate) only_failed: bool,
    /// The answer has the texts of the machine's memory.
    pub(crate) keeps_memory: bool,
}

impl Query {
    /// A row for each call-site and kind.
    pub fn by_site() -> Query {
        Query::new(Grouping::SITE)
    }

    /// A row for each cache name and kind. Objects of `kmalloc` count under their size class. Where only frees name a cache, the
    /// trace is read twice.
    pub fn by_cache() -> Query {
        Query::new(Grouping::CACHE)
    }

    /// A row for each combination of the values of `keys`, and kind.
    pub fn by(keys: &[GroupKey]) -> Query {
        Query::new(Grouping::of(keys))
    }

    /// The same query with a row for each combination of the values of `keys`, and kind.
    pub fn rows_by(self, keys: &[GroupKey]) -> Query {
        Query { grouping: Grouping::of(keys), ..self }
    }

    /// A row for each kind: `kmalloc`, `cache` and `pages`.
    pub fn by_kind() -> Query {
        Query::new(Grouping::KIND)
    }

    /// Rows for [`crate::documents::leaks()`]: of threads and call-sites, or of these keys. Filters choose among the rows; all objects are
    /// counted.
    pub fn leaks(keys: &[GroupKey]) -> Query {
        let grouping = if keys.is_empty() {
            Grouping::LEAKS
        } else {
            Grouping::of(&[keys, &[GroupKey::Site, GroupKey::Use]].concat())
        };
        Query { leaks: Some(keys.to_vec()), marks_reclaim: true, ..Query::new(grouping) }
    }

    fn new(grouping: Grouping) -> Query {
        Query {
            grouping,
            matrix: false,
            lists_live: false,
            leaks: None,
            chosen: Select::default(),
            marks_reclaim: false,
            tells_owners: false,
            splits_stacks: false,
            over_time: OverTimeRequest::default(),
            place_nodes: None,
            free_sites: false,
            learns_caches: false,
            module_rule: ModuleRule::Site,
            shows_own: false,
            select: Select::default(),
            given: Vec::new(),
            window: None,
            at_peak: false,
            slab_peak: false,
            threads: None,
            max_memory: None,
            uses_index: false,
            index_from: PAYS_FROM,
            notes: Notes::default(),
            names: NameOptions::default(),
            has_static: false,
            window_events: None,
            sized_classes: MAX_SIZED_CLASSES,
            only_failed: false,
            keeps_memory: false,
        }
    }

    /// Rows of `balance`: call-sites with the cache of their objects and the use of their pages, next to the machine's memory at both
    /// ends of the recording.
    pub fn by_part() -> Query {
        Query { keeps_memory: true, ..Query::by(&[GroupKey::Site, GroupKey::Cache, GroupKey::Use]) }
    }

    /// Rows of `failed`: allocations that returned null by call-site, order, size, flags and thread.
    pub fn by_failure() -> Query {
        let keys = [GroupKey::Site, GroupKey::Order, GroupKey::Size, GroupKey::Gfp, GroupKey::Task];
        Query { only_failed: true, keeps_memory: true, ..Query::by(&keys) }
    }

    /// Counts the peaks of all nodes of a tree over the keys of the query, the first key at the top. Where rows of modules overlap
    /// ([`ModuleRule::Any`]) the nodes are the modules themselves, of a query by the module alone.
    pub fn with_nodes(mut self, yes: bool) -> Query {
        let form = if self.module_rule == ModuleRule::Any { PathForm::Groups } else { PathForm::Tree };
        self.over_time.nodes = yes.then_some(form);
        self
    }

    /// Counts the peaks of all nodes of a tree of the kernel's sources: of areas with `by_area`, else of folders. Where debug
    /// information gives the folders, the trace is read twice. For a query [`Query::by_site`].
    pub fn with_place_nodes(mut self, by_area: bool) -> Query {
        self.over_time.nodes = Some(PathForm::Tree);
        self.place_nodes = Some(by_area);
        self
    }

    /// Lists the objects that are live at the end; about 48 bytes of memory for each.
    pub fn with_live_objects(mut self, yes: bool) -> Query {
        self.lists_live = yes;
        self
    }

    /// Makes rows of call-sites and their stacks in place of rows of call-sites alone, where the trace may have stacks: objects and
    /// samples then have their stacks.
    pub fn with_stacks(mut self, yes: bool) -> Query {
        self.splits_stacks = yes;
        self
    }

    /// Counts live bytes and allocations of each row over time.
    pub fn with_growth(mut self, yes: bool) -> Query {
        self.over_time.growth = yes;
        self
    }

    /// Marks rows whose objects the kernel takes back by itself.
    pub fn with_reclaim(mut self, yes: bool) -> Query {
        self.marks_reclaim = yes;
        self
    }

    /// Adds to each event of [`Query::observe`], and each object of [`Query::objects`], the cgroup of its thread and whether the kernel
    /// takes the object back by itself. A pass of its own finds the cgroups, where the trace gives them.
    pub fn with_owners(mut self, yes: bool) -> Query {
        self.tells_owners = yes;
        self
    }

    /// Rule by which rows of modules take an allocation. Default: the module of its call-site. An allocation without a stack belongs
    /// to the module of its call-site by any rule.
    pub fn module_rule(mut self, rule: ModuleRule) -> Query {
        self.module_rule = rule;
        self
    }

    /// Counts live bytes of each kind over time, in curves of at most `points` points: [`crate::Analysis::live_curve`].
    pub fn with_live_curve(mut self, points: usize) -> Query {
        self.over_time.curve = Some(points);
        self
    }

    /// Counts frees by the call-site that makes them: a pair under the filters of its allocation, any other free under its own.
    pub fn with_free_sites(mut self, yes: bool) -> Query {
        self.free_sites = yes;
        self
    }

    /// Counts pairs per allocating and freeing CPU.
    pub fn with_cpu_matrix(mut self, yes: bool) -> Query {
        self.matrix = yes;
        self
    }

    /// Counts the recorder's own objects, too, where the trace tells them apart.
    pub fn with_own(mut self, yes: bool) -> Query {
        self.shows_own = yes;
        self
    }

    /// Reads the static sizes of the kernel, too, where a built tree or debug information is there.
    pub fn with_static_sizes(mut self, yes: bool) -> Query {
        self.has_static = yes;
        self
    }

    /// Sources of names next to the trace.
    pub fn names(mut self, names: NameOptions) -> Query {
        self.names = names;
        self
    }

    /// Takes only allocations that `select` matches.
    pub fn select(mut self, select: Select) -> Query {
        self.select = select;
        self
    }

    /// Texts of the filters as the user gave them, by option: documents repeat them. They select nothing.
    pub fn given(mut self, filters: Vec<(&'static str, Vec<String>)>) -> Query {
        self.given = filters;
        self
    }

    /// Takes only events within a window of time; `None`: all events.
    pub fn time(mut self, window: Option<TimeWindow>) -> Query {
        self.window = window;
        self
    }

    /// Takes events up to a moment: live figures are those of that moment. At the peak the trace is read twice; it is that of pages
    /// where they were recorded, or are the only kind that the query selects, else that of `kmalloc` and `cache`;
    /// [`Query::with_slab_peak`] says otherwise.
    pub fn at(mut self, moment: Moment) -> Query {
        match moment {
            Moment::Peak => self.at_peak = true,
            Moment::Until(window) => self.window = Some(window),
        }
        self
    }

    /// The view shows `kmalloc` and `cache` where no kind is selected, so their peak is the one meant, whether pages were recorded or not.
    pub fn with_slab_peak(mut self) -> Query {
        self.slab_peak = true;
        self
    }

    /// Sets the number of threads, at least one. Default: one for each CPU. The figures do not depend on it.
    pub fn threads(mut self, threads: usize) -> Query {
        self.threads = Some(threads.max(1));
        self
    }

    /// Limits the memory of the process, in bytes. `None`: a quarter of the memory that the system has left, at least 256 MiB.
    pub fn max_memory(mut self, bytes: Option<u64>) -> Query {
        self.max_memory = bytes;
        self
    }

    /// Reads and writes the index next to a trace whose files have at least `from` bytes, [`PAYS_FROM`] for example.
    /// Default: no index.
    pub fn index(mut self, from: u64) -> Query {
        (self.uses_index, self.index_from) = (true, from);
        self
    }

    /// Neither reads nor writes an index. Places in the total order are then the same in each pass, whatever the window.
    pub fn without_index(mut self) -> Query {
        self.uses_index = false;
        self
    }

    /// Hands notes on the index and on the times of the stages to `notes`.
    pub fn notes(mut self, notes: Notes) -> Query {
        self.notes = notes;
        self
    }

    /// Sizes that change how the work is cut and no figure: events of a window, classes that have sizes of their own. Tests make
    /// them small.
    #[doc(hidden)]
    pub fn cut(mut self, window_events: Option<usize>, sized_classes: Option<u32>) -> Query {
        self.window_events = window_events;
        self.sized_classes = sized_classes.unwrap_or(self.sized_classes);
        self
    }
}
