// SPDX-License-Identifier: GPL-3.0-or-later
//! Functions that the linker replaces: the clock, random bytes, and one setting of `BoringSSL`.
//!
//! quiche has no argument for the time: it calls `Instant::now()`, and std calls `clock_gettime`. A
//! function of this name in the program takes precedence over libc's.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Added to the virtual time: the zero of the clocks is not reached by subtractions. 2001-09-09.
const EPOCH_NS: u64 = 1_000_000_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Ed25519, the scheme of the interface's certificates, which `BoringSSL` does not offer by
/// default. RFC 8446, section 4.2.3.
const SCHEMES: [u16; 3] = [0x0807, 0x0403, 0x0804];

static NOW_NS: AtomicU64 = AtomicU64::new(0);
static RANDOM: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn __real_SSL_CTX_new(method: *const c_void) -> *mut c_void;
    fn SSL_CTX_set_verify_algorithm_prefs(
        context: *mut c_void,
        schemes: *const u16,
        count: usize,
    ) -> c_int;
}

/// Sets the virtual time, ns.
pub fn set_now(now_ns: u64) {
    NOW_NS.store(now_ns, Relaxed);
}

/// Seeds all random bytes.
pub fn set_seed(seed: u64) {
    RANDOM.store(seed, Relaxed);
}

/// Fills a buffer with random bytes (splitmix64).
pub fn draw(to: &mut [u8]) {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    for part in to.chunks_mut(8) {
        let mut z = RANDOM.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bytes = (z ^ (z >> 31)).to_le_bytes();
        part.copy_from_slice(&bytes[..part.len()]);
    }
}

/// Every clock shows the virtual time.
///
/// # Safety
/// `to` is valid, as for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(_: libc::clockid_t, to: *mut libc::timespec) -> c_int {
    let now = EPOCH_NS + NOW_NS.load(Relaxed);
    let part = |ns: u64| libc::time_t::try_from(ns).unwrap_or(libc::time_t::MAX);
    // SAFETY: the caller's.
    unsafe {
        (*to).tv_sec = part(now / SECOND_NS);
        (*to).tv_nsec = part(now % SECOND_NS);
    }
    0
}

/// Random bytes of quiche and of the handshake.
///
/// # Safety
/// `to` has `length` bytes, as for `BoringSSL`'s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_RAND_bytes(to: *mut u8, length: usize) -> c_int {
    if length > 0 {
        // SAFETY: the caller's.
        draw(unsafe { std::slice::from_raw_parts_mut(to, length) });
    }
    1
}

/// A context that accepts Ed25519.
///
/// # Safety
/// As for `BoringSSL`'s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_SSL_CTX_new(method: *const c_void) -> *mut c_void {
    // SAFETY: the caller's; the schemes are copied.
    unsafe {
        let context = __real_SSL_CTX_new(method);
        if !context.is_null() {
            SSL_CTX_set_verify_algorithm_prefs(context, SCHEMES.as_ptr(), SCHEMES.len());
        }
        context
    }
}
