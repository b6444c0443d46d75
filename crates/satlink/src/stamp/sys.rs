// SPDX-License-Identifier: GPL-3.0-or-later
//! The eBPF program that notes arrivals, and the memory it shares with this process (Linux,
//! `bpf(2)`; RFC 9669 for the instructions). It is the device's filter, runs on each packet before
//! it is queued, and lets all of them pass.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use linux::check;

use crate::sys::owned;

/// Notes that are kept; a power of two.
pub(super) const NOTES: u64 = 8192;
/// A counter of arrivals, then the notes.
const BYTES: usize = 8 * (1 + NOTES as usize);

const MAP_CREATE: libc::c_long = 0;
const PROG_LOAD: libc::c_long = 5;
const ARRAY: u32 = 2;
const MMAPABLE: u32 = 1 << 10;
const SOCKET_FILTER: u32 = 1;

/// The part of `union bpf_attr` that makes a map.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

/// The part of `union bpf_attr` that loads a program.
#[repr(C)]
struct ProgLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log: [u32; 2],
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
}

/// Code, source and destination registers, offset, constant.
#[repr(C)]
struct Instruction(u8, u8, i16, i32);

/// Notes down the time, and passes the packet whole.
fn program(map: i32) -> [Instruction; 13] {
    let register = |to: u8, from: u8| from << 4 | to;
    [
        // r6 = packet; r7 = bpf_ktime_get_ns()
        Instruction(0xbf, register(6, 1), 0, 0),
        Instruction(0x85, 0, 0, 5),
        Instruction(0xbf, register(7, 0), 0, 0),
        // r1 = the shared memory, two words
        Instruction(0x18, register(1, 2), 0, map),
        Instruction(0, 0, 0, 0),
        // r2 = arrivals++
        Instruction(0xb7, register(2, 0), 0, 1),
        Instruction(0xdb, register(1, 2), 0, 1),
        // notes[r2 % NOTES] = r7
        Instruction(0x57, register(2, 0), 0, NOTES as i32 - 1),
        Instruction(0x67, register(2, 0), 0, 3),
        Instruction(0x0f, register(1, 2), 0, 0),
        Instruction(0x7b, register(1, 7), 8, 0),
        // return the packet's length
        Instruction(0x61, register(0, 6), 0, 0),
        Instruction(0x95, 0, 0, 0),
    ]
}

fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: `attributes` is the start of a `union bpf_attr` of the size that is given, and all
    // its pointers live.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    owned(fd as libc::c_int)
}

/// Memory in which the kernel notes arrivals.
#[derive(Debug)]
pub(super) struct Notes(NonNull<AtomicU64>);

// SAFETY: the memory is plain atomic counters.
unsafe impl Send for Notes {}
// SAFETY: as above.
unsafe impl Sync for Notes {}

impl Notes {
    /// Loads the program and makes it the filter of a TUN device, in place of an earlier one.
    pub(super) fn attach(tun: &impl AsRawFd) -> io::Result<Self> {
        let map = bpf(
            MAP_CREATE,
            &MapCreate {
                kind: ARRAY,
                key_size: 4,
                value_size: BYTES as u32,
                max_entries: 1,
                flags: MMAPABLE,
            },
        )?;
        let notes = Self::map(&map)?;
        let instructions = program(map.as_raw_fd());
        let license = c"GPL";
        let program = bpf(
            PROG_LOAD,
            &ProgLoad {
                kind: SOCKET_FILTER,
                instruction_count: instructions.len() as u32,
                instructions: instructions.as_ptr() as u64,
                license: license.as_ptr() as u64,
                log: [0; 2],
                log_buffer: 0,
                kernel_version: 0,
                flags: 0,
            },
        )?;
        let fd = program.as_raw_fd();
        // SAFETY: TUNSETFILTEREBPF reads one int, which `fd` is.
        check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETFILTEREBPF, &raw const fd) })?;
        Ok(notes)
    }

    fn map(map: &OwnedFd) -> io::Result<Self> {
        // SAFETY: a new mapping of the map's one value, whose size the kernel rounds up to pages as
        // mmap() does.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(memory.cast())
            .map(Self)
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Arrivals so far.
    pub(super) fn count(&self) -> u64 {
        // SAFETY: the mapping starts with the counter and lives as long as `self`.
        unsafe { self.0.as_ref() }.load(Ordering::Acquire)
    }

    /// Note of an arrival, ns of `CLOCK_MONOTONIC`.
    pub(super) fn get(&self, index: u64) -> u64 {
        let place = 1 + (index % NOTES) as usize;
        // SAFETY: `place` is at most `NOTES`, so it is inside the mapping.
        unsafe { self.0.add(place).as_ref() }.load(Ordering::Relaxed)
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and size, and is not used any longer.
        unsafe { libc::munmap(self.0.as_ptr().cast(), BYTES) };
    }
}
