// SPDX-License-Identifier: GPL-3.0-or-later
//! Encapsulation of packets: GSE on the forward link, RLE on the return link (`encap`).

use crate::fault::Faults;
use crate::xml_file::Place;

/// Trailer of a fragmented ALPDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlpduProtection {
    /// Sequence number.
    SequenceNumber,
    /// CRC-32.
    Crc,
}

/// Encapsulation of both directions (`encap`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encapsulation {
    /// GSE fragmentation contexts.
    pub gse_max_frag_id: u8,
    /// Bytes of the reassembly buffer.
    pub gse_buffer_bytes: u16,
    /// Compatibility mode of the GSE library.
    pub gse_compatibility: bool,
    /// RLE trailer.
    pub protection: AlpduProtection,
}

/// The values of `OpenSAND`'s new profiles, used where the section is missing.
impl Default for Encapsulation {
    fn default() -> Self {
        Self {
            gse_max_frag_id: 8,
            gse_buffer_bytes: 5000,
            gse_compatibility: true,
            protection: AlpduProtection::SequenceNumber,
        }
    }
}

/// Reads `encap`.
pub(crate) fn encapsulation(root: &Place<'_>) -> Encapsulation {
    let read = |place: Place<'_>| {
        Some(Encapsulation {
            gse_max_frag_id: place.value("gse/max_frag_id")?,
            gse_buffer_bytes: place.value("gse/decap_buffer_len")?,
            gse_compatibility: place.value("gse/compatibility_mode")?,
            protection: match place.text_at("rle/alpdu_protection")? {
                "CRC" => AlpduProtection::Crc,
                _ => AlpduProtection::SequenceNumber,
            },
        })
    };
    root.get("encap").and_then(read).unwrap_or_default()
}

/// Largest Ethernet frame of a LAN with an MTU of 1500 and a tag, bytes: what a reassembly buffer
/// has to hold.
const LARGEST_FRAME: u16 = 1518;

/// Reports a GSE reassembly buffer that is too short. `OpenSAND`'s own profiles have 8 bytes; 8.2.0
/// then loses every packet (its log: `DecapErrorSizePduBuffer`).
pub(crate) fn check_buffer(root: &Place<'_>, faults: &mut Faults) {
    let path = "encap/gse/decap_buffer_len";
    let Some(bytes) = root.value::<u16>(path).filter(|&it| it < LARGEST_FRAME) else {
        return;
    };
    root.nearest(path).note(
        faults,
        format!(
            "{bytes} bytes hold no packet: OpenSAND 8.2.0 drops every forward packet (DecapErrorSizePduBuffer); satlink does not"
        ),
        "write 5000",
    );
}
