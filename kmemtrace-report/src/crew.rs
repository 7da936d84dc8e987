//! The tasks of a step, done at once by several threads. A step ends when all of its tasks are done, and no two of them
//! change the same thing: the borrow checker sees to that, nothing is locked, and whoever does them, they come to the same.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// One of the things to do in a step.
pub(crate) type Task<'t> = Box<dyn FnOnce() + Send + 't>;

/// Does all tasks on so many threads, the caller's among them; each takes the first that nobody has taken.
pub(crate) fn do_all(threads: u32, tasks: Vec<Task<'_>>) {
    let others = (tasks.len() as u32).min(threads).saturating_sub(1);
    let tasks = Mutex::new(tasks.into_iter());
    let work = || {
        let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some(task) = next() {
            task();
        }
    };
    if others == 0 {
        return work();
    }
    thread::scope(|scope| {
        // Where the system has no thread to give, the others do its tasks.
        (0..others).for_each(|_| drop(thread::Builder::new().spawn_scoped(scope, work)));
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_done_once() {
        for threads in 0..5 {
            let mut numbers: Vec<u64> = (0..20).collect();
            do_all(threads, numbers.iter_mut().map(|n| Box::new(|| *n += 1) as Task<'_>).collect());
            assert_eq!(numbers, (1..21).collect::<Vec<_>>(), "{threads}");
        }
    }
}
