//! Calls that have begun and not ended: a brace does not name its function.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::graph::Call;
use super::sites::Known;

/// Limit of calls around another. The kernel traces 50 (`FTRACE_RETFUNC_DEPTH` of `include/linux/ftrace.h`).
const MAX_OPEN: usize = 256;
/// Limit of tasks.
const MAX_TASKS: usize = 1 << 18;

/// Task, or CPU where the text does not say the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Caller {
    Task(i32),
    Cpu(u32),
}

/// A call: the number of calls around it where that is known, and its function.
type Open = (Option<usize>, u64);

/// Open calls of all tasks.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: HashMap<Caller, Vec<Open>, RandomState>,
}

impl Calls {
    /// Takes a call or its end, on a CPU by a thread: the function that has ended, 0 where it is not known, and its duration in nanoseconds.
    pub(super) fn take(
        &mut self,
        known: &Known,
        (cpu, pid): (u32, Option<i32>),
        call: Call<'_>,
        depth: Option<usize>,
    ) -> Option<(u64, Option<i64>)> {
        // The idle tasks of all CPUs have one number.
        let caller = pid.filter(|&pid| pid != 0).map_or(Caller::Cpu(cpu), Caller::Task);
        let address = |name: &[u8]| known.get(name).copied().unwrap_or(0);
        let (function, duration) = match call {
            Call::Begin(name) => {
                self.begin(caller, depth, address(name));
                return None;
            }
            Call::Leaf(name, duration) => (address(name), duration),
            Call::End(Some(name), duration) => {
                self.end_of(caller, address(name));
                (address(name), duration)
            }
            Call::End(None, duration) => (self.end(caller, depth), duration),
        };
        Some((function, duration.and_then(|duration| i64::try_from(duration).ok())))
    }

    /// Begins a call.
    fn begin(&mut self, caller: Caller, depth: Option<usize>, function: u64) {
        if self.open.len() >= MAX_TASKS && !self.open.contains_key(&caller) {
            return;
        }
        let calls = self.open.entry(caller).or_default();
        // The end of a call that is as deep as this one was lost.
        while calls.last().is_some_and(|&(open, _)| open.zip(depth).is_some_and(|(open, depth)| open >= depth)) {
            calls.pop();
        }
        if calls.len() < MAX_OPEN {
            calls.push((depth, function));
        }
    }

    /// Ends the last open call, and returns its function; 0 where none is open. Deeper calls have ended, too.
    fn end(&mut self, caller: Caller, depth: Option<usize>) -> u64 {
        let Some(calls) = self.open.get_mut(&caller) else { return 0 };
        let is_here = |open: &Open| depth.is_some() && open.0 == depth;
        if let Some(at) = calls.iter().rposition(is_here) {
            calls.truncate(at.saturating_add(1));
        }
        calls.pop().map_or(0, |(_, function)| function)
    }

    /// Ends the call of a function that is named; nothing ends where it is not open.
    fn end_of(&mut self, caller: Caller, function: u64) {
        if let Some(calls) = self.open.get_mut(&caller)
            && let Some(at) = calls.iter().rposition(|open| open.1 == function)
        {
            calls.truncate(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brace_ends_the_call_that_it_closes() {
        let (task, cpu) = (Caller::Task(1), Caller::Cpu(1));
        let mut calls = Calls::default();
        calls.begin(task, Some(0), 10);
        calls.begin(cpu, Some(0), 20);
        calls.begin(task, Some(1), 11);
        assert_eq!([calls.end(task, Some(1)), calls.end(cpu, Some(0)), calls.end(task, Some(0))], [11, 20, 10]);
        assert_eq!([calls.end(task, Some(0)), calls.end(Caller::Task(2), None)], [0, 0]);
        // Without depths it is the last one.
        calls.begin(task, None, 10);
        calls.begin(task, None, 11);
        assert_eq!([calls.end(task, None), calls.end(task, None)], [11, 10]);
    }

    #[test]
    fn calls_whose_ends_were_lost_end_with_those_around_them() {
        let task = Caller::Task(1);
        let mut calls = Calls::default();
        calls.begin(task, Some(0), 10);
        calls.begin(task, Some(1), 11);
        calls.begin(task, Some(2), 12);
        assert_eq!(calls.end(task, Some(0)), 10);
        calls.begin(task, Some(0), 10);
        calls.begin(task, Some(1), 11);
        calls.begin(task, Some(1), 13);
        assert_eq!([calls.end(task, Some(1)), calls.end(task, Some(0))], [13, 10]);
        calls.begin(task, Some(0), 10);
        calls.begin(task, Some(1), 11);
        calls.end_of(task, 99);
        calls.end_of(task, 10);
        assert_eq!(calls.end(task, Some(1)), 0);
    }

    #[test]
    fn no_text_decides_how_much_memory_is_taken() {
        let mut calls = Calls::default();
        for depth in 0..2 * MAX_OPEN {
            calls.begin(Caller::Cpu(0), Some(depth), 1);
        }
        assert_eq!(calls.open[&Caller::Cpu(0)].len(), MAX_OPEN);
    }
}
