//! Loads: kernel allocations of a known number and size, made by ordinary system calls.

use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Limit of vectors on the kernel's stack; beyond it, the kernel makes one `kmalloc`.
pub const STACK_VECTORS: usize = 8;

/// Bytes of an iovec on this machine.
pub const VECTOR_BYTES: usize = 2 * size_of::<usize>();

/// Makes `count` allocations, each exactly one `kmalloc` of `VECTOR_BYTES * vectors` bytes, freed at once.
pub fn iov(count: usize, vectors: usize) -> io::Result<()> {
    assert!(vectors > STACK_VECTORS, "{vectors} vectors need no kmalloc");
    let null = File::open("/dev/null")?;
    let mut bytes = vec![[0u8; 1]; vectors];
    for _ in 0..count {
        let mut slices: Vec<IoSliceMut<'_>> = bytes.iter_mut().map(|byte| IoSliceMut::new(byte)).collect();
        rustix::io::readv(&null, &mut slices)?;
    }
    Ok(())
}

/// Makes `count` objects (each an `eventfd_ctx`, by kmalloc) that live as long as the descriptors returned.
pub fn leak(count: usize) -> io::Result<Vec<OwnedFd>> {
    (0..count).map(|_| eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)).collect()
}

/// Makes `count` objects, one a second, and holds them all until the last one is a second old.
pub fn one_a_second<T>(count: usize, make: impl Fn() -> io::Result<T>) -> io::Result<()> {
    let mut held = Vec::new();
    for _ in 0..count {
        held.push(make()?);
        thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// Makes `count` objects of a kind, all of them on the account of the task's memory cgroup; they live as long as the descriptors.
pub fn hold(kind: &str, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut held: Vec<OwnedFd> = Vec::new();
    for _ in 0..count {
        match kind {
            "pipes" => {
                let (reader, writer) = io::pipe()?;
                held.extend([OwnedFd::from(reader), writer.into()]);
            }
            "sockets" => {
                let (one, other) = UnixDatagram::pair()?;
                held.extend([OwnedFd::from(one), other.into()]);
            }
            "opened" => held.push(File::open("/dev/null")?.into()),
            _ => return Err(io::Error::other("a kind is pipes, sockets or opened")),
        }
    }
    Ok(held)
}

/// Makes `count` empty files in the current directory. In a tmpfs their inodes and names outlive the task.
pub fn files(count: usize) -> io::Result<()> {
    let own = std::process::id();
    (0..count).try_for_each(|number| File::create_new(format!("{own}-{number}")).map(drop))
}

/// CPUs on which this thread may run, ascending.
pub fn cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

fn run_on(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Sends `count` datagrams of `bytes` bytes on CPU `cpus.0` and receives them on `cpus.1`, so that the two objects of
/// each (head and data) are allocated on one CPU and freed on another.
pub fn cross(count: usize, bytes: usize, cpus: (usize, usize)) -> io::Result<()> {
    let (sender, receiver) = UnixDatagram::pair()?;
    let receiving = thread::spawn(move || -> io::Result<()> {
        run_on(cpus.1)?;
        let mut buffer = vec![0; bytes];
        for _ in 0..count {
            receiver.recv(&mut buffer)?;
        }
        Ok(())
    });
    let sending = thread::spawn(move || -> io::Result<()> {
        run_on(cpus.0)?;
        let message = vec![0x5a; bytes];
        for _ in 0..count {
            sender.send(&message)?;
        }
        Ok(())
    });
    let panicked = || io::Error::other("a thread panicked");
    sending.join().map_err(|_| panicked())??;
    receiving.join().map_err(|_| panicked())?
}

/// Runs rounds of short-lived objects of many kinds, some eighty events each, on every CPU for `time`; at most `pace`
/// rounds a second on each CPU, without `pace` as many as it can.
pub fn mix(time: Duration, pace: Option<u32>) -> io::Result<()> {
    let start = Instant::now();
    mix_while(&|_| start.elapsed() < time, pace)
}

/// Runs `count` rounds of [`mix`] on every CPU.
pub fn rounds(count: u64) -> io::Result<()> {
    mix_while(&|done| done < count, None)
}

fn mix_while(goes_on: &(impl Fn(u64) -> bool + Sync), pace: Option<u32>) -> io::Result<()> {
    on_every_cpu(|_| {
        let start = Instant::now();
        let mut rounds = 0u64;
        let standing = UnixDatagram::pair()?;
        let mut buffer = [0; 256];
        while goes_on(rounds) {
            let due =
                pace.map_or(Duration::ZERO, |pace| Duration::from_secs_f64(rounds as f64 / f64::from(pace.max(1))));
            thread::sleep(due.saturating_sub(start.elapsed()));
            rounds += 64;
            for _ in 0..64 {
                let _ = std::fs::metadata("/tmp/kmemload.no.such.file");
                let (mut reader, mut writer) = io::pipe()?;
                writer.write_all(&[1; 64])?;
                reader.read_exact(&mut buffer[..64])?;
                let made = UnixDatagram::pair()?;
                for (from, to) in [&made, &standing] {
                    from.send(&buffer)?;
                    to.recv(&mut buffer)?;
                }
                let (poll, event) = (epoll::create(epoll::CreateFlags::CLOEXEC)?, eventfd(0, EventfdFlags::CLOEXEC)?);
                epoll::add(&poll, &event, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
                iov(1, STACK_VECTORS + 1)?;
            }
        }
        Ok(())
    })
}

/// Holds `count` objects and replaces one after the other at random, on every CPU for `time`. Each is two objects of
/// the kernel, without a descriptor.
pub fn items(count: usize, time: Duration) -> io::Result<()> {
    let cpus = cpus()?.len();
    on_every_cpu(|cpu| {
        let side = (count / cpus).isqrt().max(1);
        let make = |_| Ok((epoll::create(epoll::CreateFlags::CLOEXEC)?, eventfd(0, EventfdFlags::CLOEXEC)?));
        let sets: Vec<(OwnedFd, OwnedFd)> = (0..side).map(make).collect::<io::Result<_>>()?;
        let add = |at: usize| {
            let (poll, event) = (&sets[at / side].0, &sets[at % side].1);
            epoll::add(poll, event, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
        };
        (0..side * side).try_for_each(add)?;
        let end = Instant::now() + time;
        let mut random = 0x9e37_79b9_7f4a_7c15 ^ cpu as u64;
        while Instant::now() < end {
            for _ in 0..256 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = (random % (side * side) as u64) as usize;
                epoll::delete(&sets[at / side].0, &sets[at % side].1)?;
                add(at)?;
            }
        }
        Ok(())
    })
}

/// Runs `work` on each CPU, pinned to it.
fn on_every_cpu(work: impl Fn(usize) -> io::Result<()> + Sync) -> io::Result<()> {
    let cpus = cpus()?;
    thread::scope(|scope| {
        let spawn = |&cpu: &usize| {
            let work = &work;
            scope.spawn(move || run_on(cpu).and_then(|()| work(cpu)))
        };
        let threads: Vec<_> = cpus.iter().map(spawn).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
    })
}
