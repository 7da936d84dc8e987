//! Workloads with objects that stay: evenly born, late, in bursts, in part freed again, of threads that come and go.

use kmemtrace_abi::event::{Action, Event, Kind, StreamItem};

use super::symbols::{SITES, call_site};
use super::workload::PIDS;
use super::{Options, Random, Workload, workload};

/// Caches of the objects: some that the kernel takes back, and some that it does not.
const CACHES: [&str; 5] = ["dentry", "filp", "lsm_inode_cache", "eventpoll_epi", "mine"];

/// Births of the objects of one call-site over the recording.
#[derive(Clone, Copy, Debug)]
enum Births {
    Even,
    Late,
    Burst,
    Growing,
    Random,
}

/// A random workload, most of several seconds, with such objects in it.
pub fn workload_with_leaks(seed: u64) -> Workload {
    let mut random = Random::new(seed ^ 0x1ea4);
    let mut options = Options::random(&mut random, 150);
    options.events = options.events.max(30);
    // Copies of an event have no stack of their own.
    (options.stacks, options.others) = (false, false);
    options.step = *random.pick(&[50_000_000, 50_000_000, 400_000_000, 2000]);
    options.probes = random.chance(50);
    let mut workload = workload(seed, &options);
    add_leaks(&mut workload, &mut random);
    if random.chance(70) {
        let flags = [("dentry", random.chance(80)), ("filp", random.chance(20)), ("mine", random.chance(50))];
        let line = |(name, flag): (&str, bool)| format!("{name} {}\n", u8::from(flag));
        workload.reclaim_account = flags.map(line).concat();
    }
    workload.threads_end = random.chance(70).then(|| PIDS.into_iter().filter(|_| random.chance(60)).collect());
    workload
}

/// Events of a kind of allocation that the workload has, by which others are made.
fn example(workload: &Workload, kind: Kind) -> Option<(usize, Event)> {
    workload.cpus.iter().enumerate().find_map(|(cpu, of)| {
        of.items.iter().find_map(|item| match item {
            StreamItem::Event(event)
                if event.action == Action::Alloc(kind)
                    && !event.failed
                    && event.bulk.is_none()
                    && event.stack.is_none() =>
            {
                Some((cpu, *event))
            }
            _ => None,
        })
    })
}

/// First and last time of an event.
fn span(workload: &Workload) -> Option<(u64, u64)> {
    let events = workload.cpus.iter().flat_map(|cpu| &cpu.items).filter_map(|item| match item {
        StreamItem::Event(event) => Some(event.at),
        StreamItem::Gap(_) => None,
    });
    let times: Vec<u64> = events.collect();
    Some((*times.iter().min()?, *times.iter().max()?))
}

fn add_leaks(workload: &mut Workload, random: &mut Random) {
    let Some((first, last)) = span(workload) else { return };
    let wide = workload.shape.target.word_bytes == 8;
    let mut address: u64 = if wide { 0xffff_8882_0000_0000 } else { 0xc400_0000 };
    for _ in 0..1 + random.below(4) {
        let births = *random.pick(&[
            Births::Even,
            Births::Even,
            Births::Even,
            Births::Late,
            Births::Burst,
            Births::Growing,
            Births::Random,
        ]);
        let is_of_many = random.chance(30);
        let pid = *random.pick(&PIDS);
        let count = 8 + random.below(30);
        let kept = *random.pick(&[100, 100, 100, 60, 30]);
        for _ in 0..1 + random.below(3) {
            let kind = if random.chance(50) { Kind::Kmalloc } else { Kind::Cache };
            let Some((cpu, example)) = example(workload, kind) else { continue };
            let site = call_site(&workload.shape, workload.symbols.text.map_or(0, |_| 0), random.below(SITES));
            let cache = *random.pick(&CACHES);
            let cache = example.cache.map(|_| workload.names.intern(cache.as_bytes()));
            let times = 1 + random.below(3);
            for number in 0..count * times {
                let at = born(births, (first, last), (number / times, count), random);
                let pid = if is_of_many { *random.pick(&PIDS) } else { pid };
                address += 0x40;
                let event = Event {
                    at,
                    pid: example.pid.map(|_| pid),
                    call_site: site,
                    address,
                    cache,
                    requested: 60,
                    allocated: 64,
                    ..example
                };
                if insert(workload, cpu, event) && !random.chance(kept) {
                    free(workload, cpu, &event, last);
                }
            }
        }
    }
}

/// Time of a birth, one of `count`.
fn born(births: Births, (first, last): (u64, u64), (number, count): (u64, u64), random: &mut Random) -> u64 {
    let span = u128::from(last - first);
    let share = |of: u128, whole: u128| first + (span * of / whole.max(1)) as u64;
    let (number, count) = (u128::from(number), u128::from(count));
    match births {
        Births::Even => share(number, count),
        Births::Late => share(count * 7 + number * 3, count * 10),
        Births::Burst => share(4, 10),
        Births::Growing => share(number.isqrt() * count.isqrt().max(1), count.max(1)).min(last),
        Births::Random => first + random.below(last - first + 1),
    }
}

/// Puts an event into a CPU's stream, behind those of its time; false where that is within a gap, or beside one.
fn insert(workload: &mut Workload, cpu: usize, event: Event) -> bool {
    let items = &mut workload.cpus[cpu].items;
    let is_in_gap = |item: &StreamItem| match item {
        StreamItem::Event(_) => false,
        StreamItem::Gap(gap) => gap.from.is_none_or(|from| from <= event.at) && gap.to.is_none_or(|to| to >= event.at),
    };
    let is_before = |item: &StreamItem| matches!(item, StreamItem::Event(other) if other.at <= event.at);
    let Some(before) = items.iter().rposition(is_before) else { return false };
    let has_place = !matches!(items.get(before + 1), Some(StreamItem::Gap(_))) && !items.iter().any(is_in_gap);
    if has_place {
        items.insert(before + 1, StreamItem::Event(event));
    }
    has_place
}

/// Frees an object at the end, as far as the workload has such frees.
fn free(workload: &mut Workload, cpu: usize, object: &Event, last: u64) {
    let kind = if object.action == Action::Alloc(Kind::Cache) { Kind::Cache } else { Kind::Kmalloc };
    let is_free = |item: &StreamItem| matches!(item, StreamItem::Event(event) if event.action == Action::Free(kind) && event.bulk.is_none());
    let Some(StreamItem::Event(example)) = workload.cpus[cpu].items.iter().find(|item| is_free(item)).copied() else {
        return;
    };
    let cache = example.cache.and(object.cache).or(example.cache);
    insert(workload, cpu, Event { at: last, address: object.address, pid: object.pid, cache, stack: None, ..example });
}
