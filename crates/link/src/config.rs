// SPDX-License-Identifier: GPL-3.0-or-later
//! What a link is asked to be.

use crate::Nanos;
use dvb::modcod::{FrameSize, ModCod};
use dvb::rcs2::Waveform;
use thiserror::Error;

/// Configuration of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// What carries the packets.
    pub carrier: Carrier,
    /// Propagation delay.
    pub delay: Nanos,
    /// Drop-tail limit in bytes of waiting IP packets; at least 1. A [`Carrier::Wire`] has no queue and ignores it.
    pub queue_bytes: u64,
    /// Random losses.
    pub loss: Loss,
    /// Seed of the loss generator: same seed and same input, same losses.
    pub seed: u64,
}

/// Independent (Bernoulli) losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Probability that one unit is lost, 0 to 1.
    pub ratio: f64,
    /// What is lost at a time.
    pub unit: LossUnit,
}

/// Unit that a loss takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossUnit {
    /// One IP packet, after it crossed the carrier.
    Packet,
    /// One BBFRAME or burst with all fragments in it. On a wire, where a frame is a packet, the same as `Packet`.
    Frame,
}

/// Medium of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// DVB-S2: GSE in BBFRAMEs on a continuous PLFRAME grid.
    Forward {
        /// Symbols per second.
        symbol_rate: u64,
        /// Constant MODCOD.
        modcod: ModCod,
        /// FECFRAME size.
        frame_size: FrameSize,
        /// Pilot symbols on.
        pilots: bool,
        /// GSE label of the receiver.
        label: [u8; 6],
    },
    /// DVB-RCS2: RLE in bursts at the granted slots.
    Return {
        /// Symbols per second.
        symbol_rate: u64,
        /// Burst shape.
        waveform: Waveform,
        /// Superframe duration.
        superframe: Nanos,
        /// Slots granted per superframe, spread evenly over it.
        slots: u32,
    },
    /// Delay only, unlimited rate (terrestrial segment).
    Wire,
}

/// Why a configuration cannot be a link.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The symbol rate is outside 1 baud to 10 Gbaud.
    #[error("symbol rate of {0} baud is outside 1..=10000000000")]
    SymbolRate(u64),
    /// The code rate has no FECFRAME of this size.
    #[error("MODCOD {0} has no short FECFRAME")]
    NoShortFrame(ModCod),
    /// A superframe without duration or without a granted slot carries nothing.
    #[error("superframe of {superframe_ns} ns with {slots} granted slots carries nothing")]
    NoSlots {
        /// Superframe duration.
        superframe_ns: Nanos,
        /// Granted slots.
        slots: u32,
    },
    /// A terminal sends one burst at a time.
    #[error("{slots} bursts of {burst_ns} ns do not fit a superframe of {superframe_ns} ns")]
    SlotsOverlap {
        /// Granted slots.
        slots: u32,
        /// Burst duration.
        burst_ns: Nanos,
        /// Superframe duration.
        superframe_ns: Nanos,
    },
    /// The loss ratio is not a probability.
    #[error("loss ratio {0} is outside 0..=1")]
    LossRatio(f64),
    /// The carrier takes no packet of this length.
    #[error("the carrier takes no packet of {0} bytes")]
    PacketLength(usize),
    /// A queue of 0 bytes accepts no packet.
    #[error("queue of 0 bytes accepts no packet")]
    NoQueue,
}

impl Carrier {
    /// Layer-2 rate in bit/s: data-field or burst payload bits over time. `None`: unlimited.
    #[must_use]
    pub fn rate_bps(&self) -> Option<f64> {
        match *self {
            Self::Forward {
                symbol_rate,
                modcod,
                frame_size,
                pilots,
                ..
            } => Some(symbol_rate as f64 * modcod.efficiency(frame_size, pilots)),
            Self::Return {
                waveform,
                superframe,
                slots,
                ..
            } => Some(
                (waveform.payload_bytes * 8) as f64 * f64::from(slots) * 1e9 / superframe as f64,
            ),
            Self::Wire => None,
        }
    }

    /// Bytes that one frame or burst offers to GSE or RLE; 0 for a wire, which has no frames.
    #[must_use]
    pub fn frame_payload(&self) -> usize {
        match *self {
            Self::Forward {
                modcod, frame_size, ..
            } => modcod.dfl_max_bits(frame_size).unwrap_or(0) as usize / 8,
            Self::Return { waveform, .. } => waveform.payload_bytes,
            Self::Wire => 0,
        }
    }

    /// Time on air of one frame or burst, rounded down to a nanosecond; 0 for a wire.
    #[must_use]
    pub fn frame_duration(&self) -> Nanos {
        let (symbols, symbol_rate) = self.frame_symbols();
        (symbols * 1_000_000_000)
            .checked_div(symbol_rate)
            .unwrap_or(0)
    }

    /// Time on air in ns with its fraction; 0 for a wire.
    pub(crate) fn frame_ns(&self) -> f64 {
        let (symbols, symbol_rate) = self.frame_symbols();
        symbols as f64 * 1e9 / symbol_rate as f64
    }

    /// Symbols of a frame and symbols per second; a wire has neither and says 0 of 1.
    fn frame_symbols(&self) -> (u64, u64) {
        match *self {
            Self::Forward {
                symbol_rate,
                modcod,
                frame_size,
                pilots,
                ..
            } => (modcod.plframe_symbols(frame_size, pilots), symbol_rate),
            Self::Return {
                symbol_rate,
                waveform,
                ..
            } => (waveform.symbols, symbol_rate),
            Self::Wire => (0, 1),
        }
    }
}

impl LinkConfig {
    /// Checks that this can be a link.
    ///
    /// # Errors
    /// The first fault found, see [`LinkError`].
    pub fn check(&self) -> Result<(), LinkError> {
        if !(0.0..=1.0).contains(&self.loss.ratio) {
            return Err(LinkError::LossRatio(self.loss.ratio));
        }
        if self.queue_bytes == 0 && self.carrier != Carrier::Wire {
            return Err(LinkError::NoQueue);
        }
        self.carrier.check()
    }
}

impl Carrier {
    fn check(&self) -> Result<(), LinkError> {
        match *self {
            Self::Forward {
                symbol_rate,
                modcod,
                frame_size,
                ..
            } => {
                check_symbol_rate(symbol_rate)?;
                modcod
                    .kbch(frame_size)
                    .ok_or(LinkError::NoShortFrame(modcod))?;
                Ok(())
            }
            Self::Return {
                symbol_rate,
                waveform,
                superframe,
                slots,
            } => {
                check_symbol_rate(symbol_rate)?;
                if superframe == 0 || slots == 0 {
                    return Err(LinkError::NoSlots {
                        superframe_ns: superframe,
                        slots,
                    });
                }
                let air_time = u128::from(slots) * u128::from(waveform.symbols) * 1_000_000_000;
                if air_time > u128::from(superframe) * u128::from(symbol_rate) {
                    let burst_ns = self.frame_duration();
                    return Err(LinkError::SlotsOverlap {
                        slots,
                        burst_ns,
                        superframe_ns: superframe,
                    });
                }
                Ok(())
            }
            Self::Wire => Ok(()),
        }
    }
}

fn check_symbol_rate(symbol_rate: u64) -> Result<(), LinkError> {
    if (1..=10_000_000_000).contains(&symbol_rate) {
        Ok(())
    } else {
        Err(LinkError::SymbolRate(symbol_rate))
    }
}
