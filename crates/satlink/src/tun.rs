// SPDX-License-Identifier: GPL-3.0-or-later
//! TUN devices.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use emulator::bundle::Takes;
use emulator::offload::{self, Header, Segments};

use crate::stamp::Stamps;
use crate::sys;

/// A TUN device, never blocks. Large packets are read in segments; it takes bundles.
#[derive(Debug)]
pub struct Tun {
    file: File,
    takes: Takes,
    /// Or why the kernel does not note arrivals.
    stamps: Result<Stamps, Arc<io::Error>>,
    /// The unread segments of a large packet, and its arrival time.
    segments: Segments,
    came: Option<u64>,
}

impl Tun {
    /// Attaches to the existing device `name` in the namespace at `netns`.
    ///
    /// # Errors
    /// Namespace or device do not exist, the device is attached elsewhere, or the caller may not.
    pub fn open(netns: &Path, name: &str) -> io::Result<Self> {
        let name = CString::new(name)?;
        let file = sys::in_namespace(netns, move || sys::attach_tun(&name))?;
        let takes = Takes {
            tcp: true,
            udp: sys::set_offload(&file)?,
        };
        let stamps = Stamps::new(&file).map_err(Arc::new);
        Ok(Self {
            file,
            takes,
            stamps,
            segments: Segments::default(),
            came: None,
        })
    }

    /// A second handle to the same device, for the opposite direction.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            takes: self.takes,
            stamps: self.stamps.clone(),
            segments: Segments::default(),
            came: None,
        })
    }

    /// Which bundles the device takes.
    #[must_use]
    pub fn takes(&self) -> Takes {
        self.takes
    }

    /// Whether [`Tun::read`] returns arrival times.
    ///
    /// # Errors
    /// The kernel would not note it.
    pub fn stamps(&self) -> Result<(), &io::Error> {
        self.stamps.as_ref().map(|_| ()).map_err(|error| &**error)
    }

    /// Whether segments of a large packet are left: no descriptor shows them.
    #[must_use]
    pub fn holds_more(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Whether a read could find something, as far as the notes of arrivals say.
    #[must_use]
    pub fn may_have_input(&self) -> bool {
        self.holds_more() || self.stamps.as_ref().map_or(true, Stamps::may_have_more)
    }

    /// Reads one IP packet, `None` when there is none: when it came, ns of `CLOCK_MONOTONIC`, if
    /// that is known, and its length. `buffer` has room for the largest, 65 535 bytes.
    ///
    /// # Errors
    /// The device is gone.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<(Option<u64>, usize)>> {
        if let Some(length) = self.segments.next(buffer) {
            return Ok(Some((self.came, length)));
        }
        let arrivals = self.stamps.as_ref().map_or(0, Stamps::count);
        let mut header = [0; Header::BYTES];
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
        let length = match self.file.read_vectored(&mut parts) {
            Ok(length) => length.saturating_sub(Header::BYTES),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if let Ok(stamps) = &mut self.stamps {
                    stamps.empty(arrivals);
                }
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
            Err(error) => return Err(error),
        };
        self.came = self.stamps.as_mut().ok().and_then(Stamps::take);
        let (header, packet) = (Header::parse(&header), &mut buffer[..length]);
        if header.is_whole() {
            offload::complete(&header, packet);
            return Ok(Some((self.came, length)));
        }
        self.segments.load(&header, packet);
        Ok(self.segments.next(buffer).map(|length| (self.came, length)))
    }

    /// Writes a packet or a bundle; `false` when the device would not take it.
    ///
    /// # Errors
    /// The device is gone.
    pub fn write(&mut self, header: &Header, packet: &[u8]) -> io::Result<bool> {
        let header = header.bytes();
        let parts = [IoSlice::new(&header), IoSlice::new(packet)];
        match self.file.write_vectored(&parts) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EBADFD) => Err(error),
            // The device is down, or refuses this packet: a real interface would drop it as well.
            Err(_) => Ok(false),
        }
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
