//! Kernel allocations of a known number and size, made by ordinary system calls.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Vectors that the kernel keeps on its stack: more of them are one `kmalloc`.
pub const STACK_VECTORS: usize = 8;

/// Bytes of an iovec on this machine.
pub const VECTOR_BYTES: usize = 2 * size_of::<usize>();

/// `count` times exactly one `kmalloc` of `VECTOR_BYTES * vectors` bytes, freed at once.
pub fn iov(count: usize, vectors: usize) -> io::Result<()> {
    assert!(vectors > STACK_VECTORS, "so few vectors need no kmalloc");
    let null = File::open("/dev/null")?;
    let mut bytes = vec![[0u8; 1]; vectors];
    for _ in 0..count {
        let mut slices: Vec<IoSliceMut<'_>> = bytes.iter_mut().map(|byte| IoSliceMut::new(byte)).collect();
        rustix::io::readv(&null, &mut slices)?;
    }
    Ok(())
}

/// `count` objects (each an `eventfd_ctx`, by kmalloc) that live as long as the descriptors returned.
pub fn leak(count: usize) -> io::Result<Vec<OwnedFd>> {
    (0..count).map(|_| eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)).collect()
}

/// The CPUs that this thread may run on, ascending.
pub fn cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

fn run_on(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// `count` datagrams of `bytes` bytes, sent on `cpus.0` and received on `cpus.1`: the two objects of each (its head
/// and its data) are freed on another CPU than they were made on.
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
