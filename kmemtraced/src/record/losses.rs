//! Lines about lost events: how many, why, and what to do.

use std::time::Duration;

use kmemtrace_abi::text::units::{self, counted};

use crate::choices::Priority;
use crate::process::thread::Granted;
use crate::source::{Framing, SourceFacts};
use crate::write::outcome::Outcome;
use crate::write::overruns::{Overrun, Overruns};

/// A recording, as far as its losses depend on it.
pub(crate) struct Conditions<'a> {
    pub(crate) facts: &'a SourceFacts,
    pub(crate) asked: Priority,
    pub(crate) granted: Option<Granted>,
}

/// Lines about `lost` events, one for each reason. `outcomes` are those of all CPUs; `disturbance` explains the events that no thread of
/// the recorder was too slow for, with its remedy.
pub(crate) fn lines(
    conditions: &Conditions<'_>,
    lost: u64,
    outcomes: &[(u32, Outcome)],
    disturbance: Option<&str>,
) -> Vec<String> {
    let facts = conditions.facts;
    let larger = match *facts.framing {
        Framing::SubBuffers(_) if facts.since_boot => {
            "boot with a larger trace_buf_size, or use a larger --buffer-size"
        }
        Framing::SubBuffers(_) => "record again with a larger --buffer-size",
        Framing::Relay(_) => "start the kernel with more kmemtrace.subbufs",
    };
    let buffers = facts.buffer_bytes.map_or_else(String::new, |bytes| format!(" of {}", units::bytes(bytes)));
    let mut lines = Vec::new();
    let mut unexplained = lost;
    let mut add = |reason: fn(&Overruns) -> Overrun, text: &dyn Fn(&Worst<'_>) -> String| {
        let Some(worst) = Worst::of(outcomes, reason) else { return };
        let events = worst.events.min(unexplained);
        if events > 0 {
            unexplained -= events;
            lines.push(format!("{} lost: {}", were(events), text(&worst)));
        }
    };
    add(|overruns| overruns.start, &|worst| {
        format!("{} overran before the reader of CPU {} began; {larger}", worst.buffers(&buffers), worst.cpu)
    });
    add(|overruns| overruns.writer, &|worst| {
        let (cpu, write) = (worst.cpu, worst.outcome.slowest_write);
        // Between two writes there is only work on the CPU: counting, compressing.
        let (why, remedy) = if write * 2 >= worst.longest {
            (format!("writing one block of CPU {cpu} took {}", shown(write)), ", or a faster disk".to_owned())
        } else {
            let remedy = format!(", --compress none{}", conditions.priority());
            (format!("the writer of CPU {cpu} got too little CPU time"), remedy)
        };
        format!("{why}, so no block was free and {} overran; {larger}{remedy}", worst.buffers(&buffers))
    });
    add(|overruns| overruns.reader, &|worst| {
        let (time, buffers, priority) = (shown(worst.longest), worst.buffers(&buffers), conditions.priority());
        format!("the reader of CPU {} did not run for {time} and {buffers} overran; {larger}{priority}", worst.cpu)
    });
    if unexplained > 0 {
        lines.push(format!("{} lost: {}", were(unexplained), disturbance.unwrap_or(larger)));
    }
    lines
}

impl Conditions<'_> {
    /// The way to a higher priority, if there is one.
    fn priority(&self) -> String {
        match (self.asked, &self.granted) {
            (Priority::Fifo, Some(Granted::Nice(_, Some(refused)))) => format!(", or allow SCHED_FIFO ({refused})"),
            (Priority::Fifo, _) => String::new(),
            (Priority::Nice | Priority::None, _) => ", or --priority fifo".to_owned(),
        }
    }
}

/// The CPU that lost most events for a reason, and how many all lost.
struct Worst<'a> {
    cpu: u32,
    outcome: &'a Outcome,
    longest: Duration,
    /// Events of all CPUs.
    events: u64,
    cpus: usize,
}

impl Worst<'_> {
    fn of(outcomes: &[(u32, Outcome)], reason: fn(&Overruns) -> Overrun) -> Option<Worst<'_>> {
        let lossy = || outcomes.iter().filter(|(_, outcome)| reason(&outcome.overruns).events > 0);
        let (cpu, outcome) = lossy().max_by_key(|(_, outcome)| reason(&outcome.overruns).events)?;
        let events = lossy().map(|(_, outcome)| reason(&outcome.overruns).events).fold(0, u64::saturating_add);
        let longest = reason(&outcome.overruns).longest;
        Some(Worst { cpu: *cpu, outcome, longest, events, cpus: lossy().count() })
    }

    /// The kernel's buffers that overran; `size` is the text of their size.
    fn buffers(&self, size: &str) -> String {
        match self.cpus {
            1 => format!("the kernel's buffer{size}"),
            cpus => format!("the kernel's buffers{size} of {cpus} CPUs"),
        }
    }
}

fn shown(time: Duration) -> String {
    units::duration(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn were(events: u64) -> String {
    format!("{} {}", counted(events, "event"), if events == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::fixture;
    use crate::write::outcome::Progress;

    fn outcome(overruns: Overruns, slowest_write: u64) -> Outcome {
        let slowest_write = Duration::from_millis(slowest_write);
        Outcome { overruns, slowest_write, ..Outcome::unfinished(&Progress::default()) }
    }

    fn overrun(events: u64, millis: u64) -> Overrun {
        Overrun { events, longest: Duration::from_millis(millis) }
    }

    #[test]
    fn a_line_for_each_reason_says_which_thread_starved() {
        let mut facts = fixture::facts(&fixture::one_cpu());
        facts.buffer_bytes = Some(16 << 20);
        let refused = Granted::Nice(-20, Some("no CAP_SYS_NICE".to_owned()));
        let conditions = Conditions { facts: &facts, asked: Priority::Fifo, granted: Some(refused) };
        let all = Overruns { start: overrun(1, 0), writer: overrun(20, 300), reader: overrun(300, 410) };
        let none = Overruns::default();
        let outcomes = [(0, outcome(none, 0)), (1, outcome(all, 149))];
        assert_eq!(
            lines(&conditions, 325, &outcomes, None),
            [
                "1 event was lost: the kernel's buffer of 16.0 MiB overran before the reader of CPU 1 began; record again with a larger \
             --buffer-size",
                "20 events were lost: the writer of CPU 1 got too little CPU time, so no block was free and the kernel's buffer of 16.0 \
             MiB overran; record again with a larger --buffer-size, --compress none, or allow SCHED_FIFO (no CAP_SYS_NICE)",
                "300 events were lost: the reader of CPU 1 did not run for 410 ms and the kernel's buffer of 16.0 MiB overran; record again \
             with a larger --buffer-size, or allow SCHED_FIFO (no CAP_SYS_NICE)",
                "4 events were lost: record again with a larger --buffer-size",
            ]
        );
        let conditions = Conditions { asked: Priority::Nice, ..conditions };
        let slow = |events| Overruns { writer: overrun(events, 300), ..none };
        assert_eq!(
            lines(&conditions, 27, &[(0, outcome(slow(7), 0)), (1, outcome(slow(20), 150))], None),
            [
                "27 events were lost: writing one block of CPU 1 took 150 ms, so no block was free and the kernel's buffers of 16.0 MiB of \
             2 CPUs overran; record again with a larger --buffer-size, or a faster disk",
            ]
        );
        // Counters that another program cleared may count less than the reader saw.
        assert_eq!(lines(&conditions, 0, &[(0, outcome(slow(7), 0))], None), [""; 0]);
        let other = Some("another program changed the recording");
        assert_eq!(
            lines(&conditions, 2, &[(0, outcome(none, 0))], other),
            ["2 events were lost: another program changed the recording"]
        );
    }
}
