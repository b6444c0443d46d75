// SPDX-License-Identifier: GPL-3.0-or-later
//! A seeded sequence in place of the operating system's random numbers, for this process alone.
//!
//! noq's `BBRv3` draws the time of its probes from the thread's generator and has no public way to
//! seed it. That generator asks libc for its seed; simulators such as madsim and mad-turmoil answer
//! in its place, as here. Nothing that is sent leaves the process, so predictable keys harm nobody.
//! build.rs exports the symbol.
#![expect(unsafe_code, reason = "one symbol of libc")]

use std::sync::atomic::{AtomicU64, Ordering};

static STATE: AtomicU64 = AtomicU64::new(0);

/// Starts the sequence; before anything is drawn.
pub fn seed(seed: u64) {
    STATE.store(seed, Ordering::Relaxed);
}

/// `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014).
fn next() -> u64 {
    let state = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// As getrandom(2): fills the buffer and returns its length.
///
/// # Safety
/// `buffer` has room for `length` bytes; the caller of libc's function guarantees it.
// SAFETY: no other function of this program has the name, and the signature is that of libc.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    for place in 0..length {
        let byte = next() as u8;
        // SAFETY: `place` is below `length`.
        unsafe { buffer.add(place).write(byte) };
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}
