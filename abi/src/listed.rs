//! Facts that a text of one moment lists with an allocation.

/// Sums over the objects of an entry; `None`: the text does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts {
    /// Number of objects, or of blocks of pages.
    pub objects: Option<u64>,
    /// Bytes asked for.
    pub requested: Option<u64>,
    /// Bytes handed out.
    pub allocated: Option<u64>,
    /// Bytes handed out and not asked for.
    pub wasted: Option<u64>,
    /// Pages.
    pub pages: Option<u64>,
}

impl Amounts {
    /// Bytes asked for by each object, where there are several of one size; `None` where the text does not say.
    pub fn requested_of_each(&self) -> Option<u64> {
        self.requested?.checked_div(self.objects?)
    }

    /// The sums of so many entries with these amounts.
    #[must_use]
    pub fn times(self, entries: u64) -> Amounts {
        let sum = |of_each: Option<u64>| of_each.map(|of_each| of_each.saturating_mul(entries));
        Amounts {
            objects: sum(self.objects),
            requested: sum(self.requested),
            allocated: sum(self.allocated),
            wasted: sum(self.wasted),
            pages: sum(self.pages),
        }
    }
}

/// Columns of slabinfo; `None`: the text does not say, or gives a rounded number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlabColumns {
    /// Objects in use.
    pub active_objs: Option<u64>,
    /// All objects.
    pub num_objs: Option<u64>,
    /// Bytes of an object.
    pub objsize: Option<u64>,
    /// Objects of a slab.
    pub objperslab: Option<u64>,
    /// Pages of a slab.
    pub pagesperslab: Option<u64>,
    /// Slabs with objects in use.
    pub active_slabs: Option<u64>,
    /// All slabs.
    pub num_slabs: Option<u64>,
    /// Bytes of all slabs: as the text has them, else `num_slabs` × `pagesperslab` × page size.
    pub bytes: Option<u64>,
}

/// Members that rows of some texts have besides the figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum RowExtras {
    /// None.
    #[default]
    Nothing,
    /// A line of `alloc_traces` or `alloc_calls`.
    Traces {
        /// Least, mean and largest age, in jiffies.
        age_jiffies: Option<[u64; 3]>,
        /// Least and largest thread id.
        pids: Option<[i64; 2]>,
        /// CPUs as a list of numbers, as printed: `0-1,4`.
        cpus: Option<Box<[u8]>>,
        /// NUMA nodes, in the same form.
        nodes: Option<Box<[u8]>>,
    },
    /// A line of slabinfo, or of the slab list of an OOM report.
    Slab(SlabColumns),
    /// A line of allocinfo.
    Tag {
        /// False where the kernel says that the count is not accurate.
        is_accurate: bool,
        /// The size was written with K, M or G.
        is_rounded: bool,
    },
}

/// Facts of an entry of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Listed {
    /// Number of blocks or lines that were added up.
    pub entries: u64,
    /// Sums over all objects.
    pub amounts: Amounts,
    /// Time of the latest of several allocations, in ns; 0 without times, and for a single one.
    pub newest: u64,
    /// The text gives the site: the event's call site, whatever the stack is.
    pub tells_site: bool,
    /// The functions of the stack give the kind, and without a stack the name of the cache.
    pub kind_is_of_stack: bool,
    /// Number of the stack, which no text has.
    pub handle: Option<u64>,
    /// Module that the text names as the owner.
    pub module: Option<Box<[u8]>>,
    /// Members of rows besides the figures.
    pub extras: RowExtras,
}
