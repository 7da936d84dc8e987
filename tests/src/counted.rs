//! An independent count: what a thread allocates, as an instance of the test's own has it while a recorder records the same.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::Value;

use crate::live::{Instance, Tracefs};
use crate::load;
use crate::runner::Skip;
use crate::runs;

/// Nanoseconds by which the two instances may put an event at different times: an interrupt may come in between, and take long on a busy
/// machine.
const SLACK: u64 = 12_000_000;
/// Allocations of the load by their sizes: a size comes again after this many, which take three times as long.
const SIZES: usize = 256;
/// Allocations in each part of a run, at least.
const LEAST: usize = 50;

/// Makes each run of each kind, some at once; `run` gets the kind and a seed, and returns how it ended, or the broken promise.
pub fn make_runs<K: Sync>(kinds: &[K], name: fn(&K) -> &str, run: impl Fn(&K, u64) -> Result<String, String> + Sync) {
    let cases: Vec<(&K, u64)> =
        kinds.iter().flat_map(|kind| (0..runs::number(2, 50)).map(move |seed| (kind, seed))).collect();
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let ends: Mutex<HashMap<String, u32>> = Mutex::default();
    let workers = thread::available_parallelism().map_or(2, usize::from) * 2;
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((kind, seed)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match run(kind, *seed) {
                        Ok(end) => *ends.lock().unwrap().entry(end).or_insert(0) += 1,
                        Err(fault) => {
                            eprintln!("{}, seed {seed}: {fault}", name(kind));
                            faults.lock().unwrap().push(format!("{}, seed {seed}: {fault}", name(kind)));
                        }
                    }
                }
            });
        }
    });
    println!("{} runs; ends: {:?}", cases.len(), ends.lock().unwrap());
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

/// A thread that allocates.
#[derive(Debug, Default)]
pub struct Load {
    /// Thread id; 0 until it is known.
    thread: AtomicUsize,
    begins: AtomicBool,
    ends: AtomicBool,
    /// Allocations up to now.
    made: AtomicUsize,
}

impl Load {
    /// Makes a run beside a thread that allocates once the run lets it begin. A panic of the run is its broken promise.
    pub fn beside(run: impl FnOnce(&Load) -> Result<String, String>) -> Result<String, String> {
        let load = Load::default();
        thread::scope(|scope| {
            scope.spawn(|| load.allocate());
            while load.thread.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            // A panic must not leave the thread running: the scope waits for it.
            let end = catch_unwind(AssertUnwindSafe(|| run(&load)));
            load.ends.store(true, Ordering::Release);
            load.begin();
            end.unwrap_or_else(|_| Err("the run panicked".to_owned()))
        })
    }

    pub fn thread(&self) -> usize {
        self.thread.load(Ordering::Acquire)
    }

    /// The kernel's filter for what the thread allocates.
    pub fn filter(&self) -> String {
        format!("common_pid == {}", self.thread())
    }

    pub fn begin(&self) {
        self.begins.store(true, Ordering::Release);
    }

    /// Allocates from the time when it begins until it ends.
    fn allocate(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(thread.unsigned_abs() as usize, Ordering::Release);
        while !self.begins.load(Ordering::Acquire) {
            sleep(Duration::from_millis(1));
        }
        for vectors in (0..SIZES).cycle() {
            if self.ends.load(Ordering::Acquire) {
                return;
            }
            load::iov(1, load::STACK_VECTORS + 1 + vectors).unwrap();
            self.made.fetch_add(1, Ordering::Release);
            sleep(Duration::from_micros(150));
        }
    }

    /// Waits for a while, and for some allocations.
    pub fn rest(&self, time: Duration) {
        let before = self.made.load(Ordering::Acquire);
        sleep(time);
        while self.made.load(Ordering::Acquire) < before + LEAST {
            sleep(Duration::from_millis(1));
        }
    }
}

/// The instance that counts.
pub struct Count<'t>(Instance<'t>);

impl<'t> Count<'t> {
    pub fn begin(tracefs: &'t Tracefs, load: &Load) -> Result<Count<'t>, String> {
        let own = Instance::new(tracefs).map_err(|Skip(reason)| reason)?;
        let filter = load.filter();
        let settings =
            [("trace_clock", "mono"), ("buffer_size_kb", "8192"), ("events/kmem/kmalloc/filter", filter.as_str())];
        for (file, value) in settings.into_iter().chain([("events/kmem/kmalloc/enable", "1")]) {
            own.write(file, value).map_err(|error| format!("{file}: {error}"))?;
        }
        Ok(Count(own))
    }

    /// Counts no more; what was counted until now ends before a recording does that is stopped later.
    pub fn end(&self) -> Result<(), String> {
        self.0.write("tracing_on", "0").map_err(|error| error.to_string())
    }

    pub fn events(&self) -> Result<Vec<Counted>, String> {
        let trace = self.0.read("trace").map_err(|error| error.to_string())?;
        let events: Vec<Counted> = trace.lines().filter_map(Counted::parse).collect();
        if events.len() < LEAST {
            return Err(format!("only {} events were counted", events.len()));
        }
        Ok(events)
    }
}

/// An event of the independent count.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub cpu: u64,
    /// Nanoseconds, to a microsecond.
    time: u64,
    bytes: u64,
}

impl Counted {
    /// A line of the file `trace`.
    fn parse(line: &str) -> Option<Counted> {
        let (head, record) = line.split_once(": kmalloc: ")?;
        let cpu = head.split_once('[')?.1.split_once(']')?.0.parse().ok()?;
        let (seconds, micros) = head.split_whitespace().last()?.split_once('.')?;
        let time = (seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?) * 1000;
        let bytes = record.split_once("bytes_req=")?.1.split_whitespace().next()?.parse().ok()?;
        Some(Counted { cpu, time, bytes })
    }

    pub fn lies_in(&self, gaps: &[(u64, u64)]) -> bool {
        let is_in =
            |(from, to): &(u64, u64)| from.saturating_sub(SLACK) <= self.time && self.time <= to.saturating_add(SLACK);
        gaps.iter().any(is_in)
    }
}

/// Events of the count that a recording does not have, by the lines of its view `events`.
pub fn missing(expected: &[Counted], lines: &[Value]) -> Vec<Counted> {
    let mut recorded: HashMap<(u64, u64), Vec<u64>> = HashMap::new();
    for event in lines.iter().filter(|event| event["event"] == "kmalloc") {
        let number = |member: &str| event[member].as_u64().unwrap_or(0);
        recorded.entry((number("cpu"), number("requested"))).or_default().push(number("at"));
    }
    let has = |event: &&Counted| {
        let times = recorded.get(&(event.cpu, event.bytes));
        times.is_some_and(|times| times.iter().any(|time| time.abs_diff(event.time) <= SLACK))
    };
    expected.iter().filter(|event| !has(event)).copied().collect()
}

/// Gaps among the lines of the view `events`, of a CPU, as (from, to), on the clock of the trace. The view lets no gap begin before the
/// first event: such a one begins before it.
pub fn gaps(lines: &[Value], cpu: u64) -> Vec<(u64, u64)> {
    let events = lines.iter().filter(|line| line["event"] != "gap");
    let first = events.filter_map(|event| event["at"].as_u64()).min().unwrap_or(0);
    let gaps = lines.iter().filter(|line| line["event"] == "gap" && line["cpu"] == cpu);
    let from = |gap: &Value| gap["from"].as_u64().filter(|from| *from > first).unwrap_or(0);
    gaps.map(|gap| (from(gap), gap["at"].as_u64().unwrap_or(u64::MAX))).collect()
}

/// The promise: an event of the count that a recording lacks lies in a gap, or the recording's number of lost events covers it. Returns
/// how many it lacks, or what is broken.
pub fn told(expected: &[Counted], lines: &[Value], lost: Option<u64>) -> Result<usize, String> {
    let missing = missing(expected, lines);
    let found = format!("{} of {} events missing, lost_events {lost:?}", missing.len(), expected.len());
    let of_cpus: HashMap<u64, Vec<(u64, u64)>> =
        missing.iter().map(|event| event.cpu).map(|cpu| (cpu, gaps(lines, cpu))).collect();
    let outside: Vec<&Counted> = missing.iter().filter(|event| !event.lies_in(&of_cpus[&event.cpu])).collect();
    if let [first, ..] = outside[..] {
        let before = expected.iter().filter(|event| event.time < first.time).count();
        let what = format!("{} in no gap, such as {first:?} behind {before} others: {of_cpus:?}", outside.len());
        return Err(format!("{found}: {what}"));
    }
    if lost.is_some_and(|lost| lost < missing.len() as u64) {
        return Err(format!("{found}: the number is wrong"));
    }
    Ok(missing.len())
}
