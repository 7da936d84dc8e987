//! Members that rows of texts of one moment have besides the figures, joined over the entries of a row.

use kmemtrace_abi::listed::{RowExtras, SlabColumns};

/// Members of a row, joined: least, mean by count and largest, unions of lists, sums of columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JoinedExtras {
    /// Least age, sum of ages, number of objects, largest age.
    ages: Option<(u64, u128, u128, u64)>,
    pub(crate) pids: Option<[i64; 2]>,
    pub(crate) cpus: NumberList,
    pub(crate) nodes: NumberList,
    pub(crate) slab: Option<SlabColumns>,
    pub(crate) is_accurate: Option<bool>,
    pub(crate) is_rounded: Option<bool>,
}

/// Numbers in ranges, as lists of CPUs have them: `0-1,4`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NumberList {
    /// Both ends, ascending and apart.
    ranges: Vec<(u32, u32)>,
    /// One list that is no list of numbers: as it was printed.
    odd: Option<Box<[u8]>>,
}

impl NumberList {
    fn add(&mut self, text: &[u8]) {
        match parse_list(text) {
            Some(ranges) => {
                self.ranges.extend(ranges);
                self.join();
            }
            None => self.odd = Some(text.into()),
        }
    }

    fn join(&mut self) {
        self.ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::new();
        for (first, last) in self.ranges.drain(..) {
            match joined.last_mut().filter(|before| first <= before.1.saturating_add(1)) {
                Some(before) => before.1 = before.1.max(last),
                None => joined.push((first, last)),
            }
        }
        self.ranges = joined;
    }

    /// The list as the kernel prints it; `None` without any.
    pub(crate) fn text(&self) -> Option<Box<[u8]>> {
        if self.ranges.is_empty() {
            return self.odd.clone();
        }
        let part = |&(first, last): &(u32, u32)| match last {
            last if last == first => first.to_string(),
            last => format!("{first}-{last}"),
        };
        Some(self.ranges.iter().map(part).collect::<Vec<_>>().join(",").into_bytes().into())
    }
}

fn parse_list(text: &[u8]) -> Option<Vec<(u32, u32)>> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some((first, last))
    };
    std::str::from_utf8(text).ok()?.split(',').map(part).collect()
}

fn plus(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.saturating_add(b?))
}

/// The value of both, if it is the same.
fn same(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.filter(|_| a == b)
}

impl JoinedExtras {
    /// True without members.
    pub(crate) fn is_empty(&self) -> bool {
        *self == JoinedExtras::default()
    }

    /// Least, mean and largest age, in jiffies; the mean is rounded down.
    pub(crate) fn age_jiffies(&self) -> Option<[u64; 3]> {
        let (least, sum, objects, greatest) = self.ages?;
        let mean = u64::try_from(sum.checked_div(objects).unwrap_or(sum)).unwrap_or(u64::MAX);
        Some([least, mean, greatest])
    }

    /// Adds those of an entry of `objects` objects.
    pub(crate) fn add(&mut self, extras: &RowExtras, objects: Option<u64>) {
        match extras {
            RowExtras::Nothing => {}
            RowExtras::Traces { age_jiffies, pids, cpus, nodes } => {
                if let Some([least, mean, greatest]) = *age_jiffies {
                    let objects = u128::from(objects.unwrap_or(1));
                    let sum = u128::from(mean).saturating_mul(objects);
                    self.ages = Some(match self.ages {
                        Some((low, ages, all, high)) => {
                            (low.min(least), ages.saturating_add(sum), all + objects, high.max(greatest))
                        }
                        None => (least, sum, objects, greatest),
                    });
                }
                if let Some([least, greatest]) = *pids {
                    let known = self.pids.unwrap_or([least, greatest]);
                    self.pids = Some([known[0].min(least), known[1].max(greatest)]);
                }
                cpus.iter().for_each(|list| self.cpus.add(list));
                nodes.iter().for_each(|list| self.nodes.add(list));
            }
            RowExtras::Slab(columns) => {
                self.slab = Some(match self.slab {
                    Some(slab) => SlabColumns {
                        active_objs: plus(slab.active_objs, columns.active_objs),
                        num_objs: plus(slab.num_objs, columns.num_objs),
                        objsize: same(slab.objsize, columns.objsize),
                        objperslab: same(slab.objperslab, columns.objperslab),
                        pagesperslab: same(slab.pagesperslab, columns.pagesperslab),
                        active_slabs: plus(slab.active_slabs, columns.active_slabs),
                        num_slabs: plus(slab.num_slabs, columns.num_slabs),
                        bytes: plus(slab.bytes, columns.bytes),
                    },
                    None => *columns,
                });
            }
            RowExtras::Tag { is_accurate, is_rounded } => {
                self.is_accurate = Some(self.is_accurate.unwrap_or(true) && *is_accurate);
                self.is_rounded = Some(self.is_rounded.unwrap_or(false) || *is_rounded);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(ages: [u64; 3], pids: [i64; 2], cpus: &str) -> RowExtras {
        RowExtras::Traces { age_jiffies: Some(ages), pids: Some(pids), cpus: Some(cpus.as_bytes().into()), nodes: None }
    }

    #[test]
    fn ages_are_joined_by_count_and_lists_are_united() {
        let mut joined = JoinedExtras::default();
        assert!(joined.is_empty());
        joined.add(&traces([5, 10, 20], [3, 9], "0-1,4"), Some(2));
        joined.add(&traces([7, 11, 90], [-1, 4], "2,7-8"), Some(1));
        assert_eq!(joined.age_jiffies(), Some([5, 10, 90]));
        assert_eq!(joined.pids, Some([-1, 9]));
        assert_eq!(joined.cpus.text().as_deref(), Some(&b"0-2,4,7-8"[..]));
        assert_eq!(joined.nodes.text(), None);
    }

    #[test]
    fn columns_of_caches_of_one_name_are_added_up() {
        let columns = |n, size| SlabColumns { active_objs: Some(n), objsize: Some(size), ..SlabColumns::default() };
        let mut joined = JoinedExtras::default();
        joined.add(&RowExtras::Slab(columns(3, 64)), None);
        joined.add(&RowExtras::Slab(columns(4, 96)), None);
        assert_eq!(joined.slab, Some(SlabColumns { active_objs: Some(7), ..SlabColumns::default() }));
    }
}
