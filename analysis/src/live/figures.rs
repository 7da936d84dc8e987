//! Figures of one row, kept as events pass.

use super::ticks::{TICK, Ticks};

/// Slice of time of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    /// Live bytes at the slice's start.
    live: u64,
    /// Objects that are live and were allocated in the slice.
    born: u32,
}

/// Counts at a tick.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    live: u64,
    allocs: u64,
    frees: u64,
}

/// Time of an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    /// Order key.
    pub(super) at: u64,
    /// Number of its slice, of `ticks` ones.
    pub(super) slice: usize,
    pub(super) ticks: usize,
}

/// Figures of one row.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Bytes.
    pub(super) live: u64,
    pub(super) peak: u64,
    /// Order key at which the peak was reached.
    pub(super) peak_at: u64,
    /// Bytes that live objects asked for.
    pub(super) live_requested: u64,
    pub(super) objects: u64,
    pub(super) allocs: u64,
    /// Objects that are gone.
    pub(super) frees: u64,
    /// Objects freed on another CPU than the one that allocated them.
    pub(super) cross_cpu: u64,
    /// Order keys of the first and of the last allocation, where there was one.
    pub(super) first_at: u64,
    pub(super) last_at: u64,
    /// Live bytes at the mark.
    pub(super) at_mark: Option<u64>,
    /// Slices up to the last one; those before began when the row was not there.
    slices: Vec<Slice>,
    /// Counts at the last tick and the two before.
    past: [Counts; 3],
}

/// Rates of a row over the last two seconds, or over all of a shorter time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    /// Change of the live bytes in a second.
    pub(super) growth: i64,
    pub(super) allocs: u64,
    pub(super) frees: u64,
}

/// Rate of a number of things in a time of nanoseconds; 0 where no time has passed.
pub(super) fn per_second(number: u64, time: u64) -> u64 {
    let rate = (u128::from(number) * u128::from(TICK)).checked_div(time.into()).unwrap_or(0);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

impl Figures {
    /// So many objects of these bytes together are allocated; 0 for an entry of a text that does not tell their number.
    #[inline]
    pub(super) fn allocated(&mut self, birth: Birth, (requested, allocated): (u64, u64), objects: u64) {
        let Birth { at, slice, ticks } = birth;
        self.first_at = if self.allocs == 0 { at } else { self.first_at.min(at) };
        self.last_at = self.last_at.max(at);
        self.live = self.live.saturating_add(allocated);
        if self.live > self.peak {
            (self.peak, self.peak_at) = (self.live, at);
        }
        self.live_requested = self.live_requested.saturating_add(requested);
        self.objects = self.objects.saturating_add(objects);
        // A row without allocations is none.
        self.allocs = self.allocs.saturating_add(objects.max(1));
        if let Some(slice) = self.slice(slice, ticks) {
            slice.born = slice.born.saturating_add(u32::try_from(objects).unwrap_or(u32::MAX));
        }
    }

    /// Bytes of an object are gone, all of them or a part.
    #[inline]
    pub(super) fn freed(&mut self, (requested, allocated): (u64, u64)) {
        self.live = self.live.saturating_sub(allocated);
        self.live_requested = self.live_requested.saturating_sub(requested);
    }

    /// An object is gone that was allocated in `slice`.
    #[inline]
    pub(super) fn ended(&mut self, slice: usize, ticks: usize, crossed: bool) {
        self.objects = self.objects.saturating_sub(1);
        self.frees += 1;
        self.cross_cpu += u64::from(crossed);
        if let Some(slice) = self.slice(slice, ticks) {
            slice.born = slice.born.saturating_sub(1);
        }
    }

    /// So many objects that stay live were never those of this row.
    pub(super) fn lost(&mut self, slice: usize, ticks: usize, objects: u64) {
        self.objects = self.objects.saturating_sub(objects);
        self.allocs = self.allocs.saturating_sub(objects.max(1));
        if let Some(slice) = self.slice(slice, ticks) {
            slice.born = slice.born.saturating_sub(u32::try_from(objects).unwrap_or(u32::MAX));
        }
    }

    /// Adds the slices before the row's first one, without live bytes at their begin.
    pub(super) fn reach_back(&mut self, ticks: usize) {
        let before = ticks.saturating_sub(self.slices.len());
        self.slices.splice(..0, std::iter::repeat_n(Slice::default(), before));
    }

    /// Begins at `at` with what is live: changes and peaks are counted from here on.
    pub(super) fn begin(&mut self, at: u64, has_mark: bool) {
        (self.peak, self.peak_at) = (self.live, at);
        self.past = [self.counts(); 3];
        self.slices.iter_mut().for_each(|slice| slice.live = self.live);
        self.at_mark = has_mark.then_some(self.live);
    }

    /// Slice of this number of `ticks`; the row's own may begin later.
    #[inline]
    fn slice(&mut self, slice: usize, ticks: usize) -> Option<&mut Slice> {
        if self.slices.is_empty() {
            self.slices.push(Slice::default());
        }
        let before = ticks.saturating_sub(self.slices.len());
        self.slices.get_mut(slice.checked_sub(before)?)
    }

    /// Begins the last slice of `ticks`, after those numbered `joined` were joined with the ones before.
    pub(super) fn tick(&mut self, ticks: usize, joined: &[usize]) {
        if self.allocs == 0 {
            // Slices begin with the row's first object.
            return;
        }
        self.past.rotate_right(1);
        self.past[0] = self.counts();
        self.slices.push(Slice { live: self.live, born: 0 });
        let before = (ticks + joined.len()).saturating_sub(self.slices.len());
        for slice in joined.iter().filter_map(|slice| slice.checked_sub(before)) {
            if slice == 0 {
                // The slice before began without the row.
                self.slices[0].live = 0;
            } else if slice < self.slices.len() {
                let Slice { born, .. } = self.slices.remove(slice);
                self.slices[slice - 1].born = self.slices[slice - 1].born.saturating_add(born);
            }
        }
    }

    /// Live bytes at the begin of a slice.
    pub(super) fn live_at(&self, slice: usize, ticks: usize) -> u64 {
        let before = ticks.saturating_sub(self.slices.len());
        slice.checked_sub(before).and_then(|slice| self.slices.get(slice)).map_or(0, |slice| slice.live)
    }

    fn counts(&self) -> Counts {
        Counts { live: self.live, allocs: self.allocs, frees: self.frees }
    }

    /// Rates over the last two whole seconds; where the row has been counted for less, over that `time` in nanoseconds.
    pub(super) fn rates(&self, time: Option<u64>) -> Rates {
        let [last, _, before] = self.past;
        // Fewer than three ticks have passed in a shorter time: the counts before are those at its begin.
        let last = if time.is_some() { self.counts() } else { last };
        let time = time.unwrap_or(2 * TICK);
        let growth = i128::from(last.live) - i128::from(before.live);
        let growth = (growth * i128::from(TICK)).checked_div(time.into()).unwrap_or(0);
        Rates {
            growth: growth.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
            // An allocation from before the time may have been taken back since.
            allocs: per_second(last.allocs.saturating_sub(before.allocs), time),
            frees: per_second(last.frees.saturating_sub(before.frees), time),
        }
    }

    /// True where the row has nothing and has not changed of late.
    pub(super) fn is_idle(&self) -> bool {
        self.objects == 0 && self.past.iter().all(|past| past.allocs == self.allocs && past.frees == self.frees)
    }

    /// Ages of live objects in nanoseconds at `now`, with their numbers, the youngest first.
    pub(super) fn ages<'a>(&'a self, ticks: &'a Ticks, now: u64) -> impl Iterator<Item = (u64, u64)> + 'a {
        let before = ticks.len().saturating_sub(self.slices.len());
        let slices = self.slices.iter().enumerate().rev().filter(|(_, slice)| slice.born > 0);
        slices.map(move |(number, slice)| {
            let (begin, end) = (ticks.begin(before + number), ticks.begin(before + number + 1).min(now));
            let middle = begin.saturating_add(end.saturating_sub(begin) / 2);
            (now.saturating_sub(middle), u64::from(slice.born))
        })
    }

    /// Median age of live objects, in nanoseconds.
    pub(super) fn median_age(&self, ticks: &Ticks, now: u64) -> Option<u64> {
        let mut passed = 0;
        self.ages(ticks, now).find_map(|(age, objects)| {
            passed += objects;
            (2 * passed >= self.objects).then_some(age)
        })
    }
}
