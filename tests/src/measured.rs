//! Runs of programs with what they took: memory and processor time.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::programs::text;

/// How a program ended, and the most that it took.
#[derive(Debug)]
pub struct Ran {
    /// Exit status; `None` after a signal.
    pub status: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
    /// VmHWM, in KiB.
    pub peak: u64,
    /// Processor time of all threads.
    pub processor: Duration,
}

/// Runs a program to its end. One that has not ended after `most` is killed, and the test fails.
pub fn run(command: &mut Command, most: Duration) -> Ran {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let all = |from: &mut dyn Read| {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let pid = Pid::from_child(&child);
    thread::scope(|scope| {
        let stdout = scope.spawn(move || all(&mut out));
        let stderr = scope.spawn(move || text(&all(&mut err)));
        let (begin, mut peak) = (Instant::now(), 0);
        loop {
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
            peak = line.map_or(peak, |kilobytes| kilobytes.trim().parse().unwrap());
            // The process stays until it is waited for, so that its times can be read.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            if waitid(WaitId::Pid(pid), options).unwrap().is_some() {
                break;
            }
            if begin.elapsed() > most {
                child.kill().unwrap();
                panic!("{command:?} does not end");
            }
            thread::sleep(Duration::from_millis(1));
        }
        let processor = processor_time(child.id());
        let status = child.wait().unwrap().code();
        Ran { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap(), peak, processor }
    })
}

/// Time of a process in user mode and in the kernel (proc_pid_stat(5), fields 14 and 15).
fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind_name = stat.rsplit(") ").next().unwrap();
    let ticks: u64 = behind_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}
