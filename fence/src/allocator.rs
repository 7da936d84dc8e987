//! The system's allocator, which ends the program where it has no memory.
#![expect(unsafe_code, reason = "an allocator deals in raw memory")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::stderr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::SENTENCE;

/// Exit status of a program that needs more memory than it may take.
const STATUS: i32 = 2;

/// The system's allocator. Behind the fence it ends the program with its sentence where it would return null.
#[derive(Clone, Copy, Debug)]
pub struct Allocator;

/// A thread is ending the program.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Ends the program with its sentence; returns where no limit was set.
#[cold]
pub fn refuse() {
    let Some(line) = SENTENCE.get() else { return };
    // Threads that are refused at the same time say it once: the others wait for the end.
    while ENDING.swap(true, Ordering::Relaxed) {
        thread::sleep(Duration::from_secs(1));
    }
    // Nothing here allocates.
    let _ = rustix::io::write(stderr(), line.as_bytes());
    // SAFETY: the call takes a number and does not return. Nothing is cleaned up, which might take memory, too.
    unsafe { libc::_exit(STATUS) }
}

#[inline]
fn checked(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        refuse();
    }
    memory
}

// SAFETY: every call goes to the system's allocator as it is, and the result comes back as it is.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps what the system's allocator asks for, which is the same.
        checked(unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        checked(unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as in `alloc`; `memory` is of this allocator, so it is the system's.
        checked(unsafe { System.realloc(memory, layout, bytes) })
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}
