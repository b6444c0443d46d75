// SPDX-License-Identifier: GPL-3.0-or-later
//! What carries the packets of one direction, and its rates.

use crate::{LinkError, Nanos};
use dvb::acm::Rung;
use dvb::modcod::{FrameSize, ModCod};
use dvb::opensand;
use dvb::rcs2::Waveform;

/// Highest rate of a line, bit/s.
const MAX_LINE_BPS: u64 = 100_000_000_000;

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
    /// The forward link as `OpenSAND` 8.2 schedules it: whole BBFRAMEs of Ethernet frames, released
    /// in batches on a tick.
    OpenSandForward {
        /// Symbols per second.
        symbol_rate: u64,
        /// Constant MODCOD.
        modcod: ModCod,
        /// Time between two batches, 10 ms by default.
        tick: Nanos,
        /// GSE label of the receiver.
        label: [u8; 6],
        /// Lose what 8.2.0 loses: where a packet meets a rest of a BBFRAME below
        /// [`dvb::opensand::SMALLEST_REST`], the frame stays open and every packet that waits is
        /// lost.
        defects: bool,
        /// Time by which each tick starts the next one late. The symbols of a tick do not change.
        drift: Nanos,
    },
    /// The return link as `OpenSAND` 8.2 schedules it: all bursts of a superframe, of Ethernet
    /// frames, at its tick.
    OpenSandReturn {
        /// Symbols per second.
        symbol_rate: u64,
        /// Burst shape; the payload is [`dvb::opensand::burst_payload`].
        waveform: Waveform,
        /// Superframe duration, 26.5 ms by default.
        superframe: Nanos,
        /// Bursts granted per superframe.
        slots: u32,
    },
    /// A wire with a rate and a queue: packet after packet, without frames.
    Line {
        /// Bits per second, 1 to 100 Gbit/s.
        rate_bps: u64,
        /// Bytes of each packet that the rate counts beyond IP: 14 where Linux's `tbf` sends into
        /// an Ethernet.
        header_bytes: u8,
    },
    /// Delay only, unlimited rate (terrestrial segment, or a lossy LAN with losses).
    Wire,
}

/// What adaptive coding chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// MODCOD of a forward carrier.
    ModCod(ModCod),
    /// Waveform of a return carrier, and the slots per superframe that it has with this waveform.
    Waveform(Waveform, u32),
}

impl Carrier {
    /// A line whose rate counts IP packets alone.
    #[must_use]
    pub fn line(rate_bps: u64) -> Self {
        Self::Line {
            rate_bps,
            header_bytes: 0,
        }
    }

    /// Returns the bytes that the rate of a line counts for each packet in addition to IP; 0 for
    /// all other carriers.
    #[must_use]
    pub fn header_bytes(&self) -> u8 {
        match *self {
            Self::Line { header_bytes, .. } => header_bytes,
            _ => 0,
        }
    }

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
            Self::OpenSandForward {
                modcod,
                tick,
                drift,
                ..
            } => {
                let per_tick =
                    self.symbols_per_tick() as f64 / opensand::bbframe_symbols(modcod) as f64;
                let bits = (opensand::bbframe_payload(modcod) * 8) as f64;
                Some(bits * per_tick * 1e9 / (tick + drift) as f64)
            }
            Self::OpenSandReturn {
                waveform,
                superframe,
                slots,
                ..
            } => {
                let bits = (opensand::burst_payload(waveform) * 8) as f64;
                Some(bits * f64::from(slots) * 1e9 / superframe as f64)
            }
            Self::Line { rate_bps, .. } => Some(rate_bps as f64),
            Self::Wire => None,
        }
    }

    /// Bytes that one frame or burst offers to GSE or RLE; 0 for a wire or a line, which have no
    /// frames.
    #[must_use]
    pub fn frame_payload(&self) -> usize {
        match *self {
            Self::Forward {
                modcod, frame_size, ..
            } => modcod.dfl_max_bits(frame_size).unwrap_or(0) as usize / 8,
            Self::Return { waveform, .. } => waveform.payload_bytes,
            Self::OpenSandForward { modcod, .. } => opensand::bbframe_payload(modcod),
            Self::OpenSandReturn { waveform, .. } => opensand::burst_payload(waveform),
            Self::Line { .. } | Self::Wire => 0,
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

    /// `Es/N0` threshold in dB; `None` for a wire.
    #[must_use]
    pub fn threshold_db(&self) -> Option<f64> {
        match self {
            Self::Forward { modcod, .. } | Self::OpenSandForward { modcod, .. } => {
                Some(modcod.es_n0_db())
            }
            Self::Return { waveform, .. } | Self::OpenSandReturn { waveform, .. } => {
                Some(waveform.threshold_db())
            }
            Self::Line { .. } | Self::Wire => None,
        }
    }

    /// Id of its MODCOD or waveform, 1 to 31; 0 for a wire.
    #[must_use]
    pub fn waveform_id(&self) -> u8 {
        match self {
            Self::Forward { modcod, .. } | Self::OpenSandForward { modcod, .. } => modcod.id,
            Self::Return { waveform, .. } | Self::OpenSandReturn { waveform, .. } => waveform.id,
            Self::Line { .. } | Self::Wire => 0,
        }
    }

    /// Name of a MODCOD or waveform of this kind of carrier.
    #[must_use]
    pub fn waveform_name(&self, id: u8) -> Option<String> {
        match self {
            Self::Forward { .. } | Self::OpenSandForward { .. } => {
                ModCod::by_id(id).map(|modcod| modcod.to_string())
            }
            Self::Return { .. } | Self::OpenSandReturn { .. } => {
                Waveform::by_id(id).map(|waveform| waveform.to_string())
            }
            Self::Line { .. } | Self::Wire => None,
        }
    }

    /// MODCOD of a forward carrier.
    #[must_use]
    pub fn modcod(&self) -> Option<ModCod> {
        match *self {
            Self::Forward { modcod, .. } | Self::OpenSandForward { modcod, .. } => Some(modcod),
            _ => None,
        }
    }

    /// This forward carrier with another MODCOD; others stay as they are.
    #[must_use]
    pub fn with_modcod(mut self, new: ModCod) -> Self {
        if let Self::Forward { modcod, .. } | Self::OpenSandForward { modcod, .. } = &mut self {
            *modcod = new;
        }
        self
    }

    /// Returns this carrier with another MODCOD, or another waveform and its slots. A coding of
    /// another kind of carrier changes nothing.
    #[must_use]
    pub fn with_coding(self, coding: Coding) -> Self {
        match coding {
            Coding::ModCod(modcod) => self.with_modcod(modcod),
            Coding::Waveform(new, granted) => {
                let mut tuned = self.with_slots(granted);
                if let Self::Return { waveform, .. } | Self::OpenSandReturn { waveform, .. } =
                    &mut tuned
                {
                    *waveform = new;
                }
                tuned
            }
        }
    }

    /// The coding as something to choose, if it can be chosen on this carrier.
    pub(crate) fn rung(&self, coding: Coding) -> Option<Rung<Coding>> {
        self.with_coding(coding).check().ok()?;
        let (threshold_centi_db, efficiency) = match (coding, self) {
            (Coding::ModCod(modcod), _) => {
                let (size, pilots) = self.framing()?;
                (modcod.es_n0_centi_db, modcod.efficiency(size, pilots))
            }
            // The slots are for bursts of one length.
            (
                Coding::Waveform(new, _),
                Self::Return { waveform, .. } | Self::OpenSandReturn { waveform, .. },
            ) if new.symbols == waveform.symbols => (new.threshold_centi_db, new.efficiency()),
            _ => return None,
        };
        Some(Rung {
            coding,
            threshold_centi_db,
            efficiency,
        })
    }

    /// Returns this carrier with another symbol rate. A wire has no symbol rate and is not changed.
    #[must_use]
    pub fn with_symbol_rate(mut self, new: u64) -> Self {
        if let Self::Forward { symbol_rate, .. }
        | Self::OpenSandForward { symbol_rate, .. }
        | Self::Return { symbol_rate, .. }
        | Self::OpenSandReturn { symbol_rate, .. } = &mut self
        {
            *symbol_rate = new;
        }
        self
    }

    /// FECFRAME size and pilots of a forward carrier.
    pub(crate) fn framing(&self) -> Option<(FrameSize, bool)> {
        match *self {
            Self::Forward {
                frame_size, pilots, ..
            } => Some((frame_size, pilots)),
            Self::OpenSandForward { .. } => Some((FrameSize::Normal, false)),
            _ => None,
        }
    }

    /// Symbols that the forward scheduler of `OpenSAND` has for a tick; 0 for other carriers.
    pub(crate) fn symbols_per_tick(&self) -> u64 {
        let Self::OpenSandForward {
            symbol_rate, tick, ..
        } = *self
        else {
            return 0;
        };
        (u128::from(symbol_rate) * u128::from(tick) / 1_000_000_000) as u64
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
            }
            | Self::OpenSandReturn {
                symbol_rate,
                waveform,
                ..
            } => (waveform.symbols, symbol_rate),
            Self::OpenSandForward {
                symbol_rate,
                modcod,
                ..
            } => (opensand::bbframe_symbols(modcod), symbol_rate),
            Self::Line { .. } | Self::Wire => (0, 1),
        }
    }
}

impl Carrier {
    pub(crate) fn check(&self) -> Result<(), LinkError> {
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
            Self::OpenSandForward {
                symbol_rate,
                modcod,
                ..
            } => {
                check_symbol_rate(symbol_rate)?;
                let (frame, tick) = (opensand::bbframe_symbols(modcod), self.symbols_per_tick());
                if frame > tick {
                    return Err(LinkError::FrameAboveTick { frame, tick });
                }
                Ok(())
            }
            Self::Return {
                symbol_rate,
                waveform,
                superframe,
                slots,
            } => {
                let holds = |waveform: Waveform| {
                    let air_time = u128::from(slots) * u128::from(waveform.symbols) * 1_000_000_000;
                    air_time <= u128::from(superframe) * u128::from(symbol_rate)
                };
                self.check_slots(symbol_rate, superframe, slots, holds(waveform))
            }
            Self::OpenSandReturn {
                symbol_rate,
                waveform,
                superframe,
                slots,
            } => {
                let limit = opensand::slot_limit(symbol_rate, superframe, waveform);
                self.check_slots(symbol_rate, superframe, slots, u64::from(slots) <= limit)
            }
            Self::Line { rate_bps, .. } if (1..=MAX_LINE_BPS).contains(&rate_bps) => Ok(()),
            Self::Line { rate_bps, .. } => Err(LinkError::LineRate(rate_bps)),
            Self::Wire => Ok(()),
        }
    }

    fn check_slots(
        &self,
        symbol_rate: u64,
        superframe_ns: Nanos,
        slots: u32,
        they_fit: bool,
    ) -> Result<(), LinkError> {
        check_symbol_rate(symbol_rate)?;
        if superframe_ns == 0 || slots == 0 {
            return Err(LinkError::NoSlots {
                superframe_ns,
                slots,
            });
        }
        if they_fit {
            return Ok(());
        }
        Err(LinkError::SlotsOverlap {
            slots,
            burst_ns: self.frame_duration(),
            superframe_ns,
        })
    }
}

fn check_symbol_rate(symbol_rate: u64) -> Result<(), LinkError> {
    if (1..=10_000_000_000).contains(&symbol_rate) {
        Ok(())
    } else {
        Err(LinkError::SymbolRate(symbol_rate))
    }
}
