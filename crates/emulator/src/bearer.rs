// SPDX-License-Identifier: GPL-3.0-or-later
//! What a direction carries packets with: a link of one terminal, or carriers that several share.

use link::{
    Assignments, Carrier, Change, Counters, FifoState, Link, LinkConfig, LinkError, Nanos,
    RandomReturn, Reception, ReturnCarrier, SharedCarrier as _, SharedForward, Stage, Volume,
};

use crate::carriers::Carriers;
use crate::terminals::Subnets;

/// A direction. A terminal is named by its index, the ST is 0.
pub enum Bearer {
    /// The link of one terminal, or the part of it in this process.
    Alone(Box<dyn Stage>),
    /// From each gateway. The destination of a packet selects the terminal.
    Forward(Carriers<SharedForward>, Vec<Subnets>),
    /// To the gateway of each carrier, by index; empty if all carriers have the same gateway.
    Return(Carriers<dyn ReturnCarrier>, Vec<usize>),
}

/// What a terminal of a shared carrier did since the start.
#[derive(Debug, Clone, PartialEq)]
pub struct OfTerminal {
    /// Counters.
    pub counters: Counters,
    /// What waits.
    pub queue: Volume,
    /// Present carrier.
    pub carrier: Carrier,
    /// `Es/N0` of frames sent now, dB.
    pub es_n0_db: Option<f64>,
    /// FIFOs of the terminal, highest priority first (see [`Stage::fifos`]); empty for the total of
    /// all terminals.
    pub fifos: Vec<FifoState>,
}

impl OfTerminal {
    fn new(counters: &Counters, fifos: Vec<FifoState>, config: &LinkConfig) -> Self {
        let reception = config.reception.as_ref();
        Self {
            counters: *counters,
            queue: fifos.iter().map(|it| it.queue).sum(),
            fifos,
            carrier: config.carrier,
            es_n0_db: reception.map(Reception::effective_es_n0_db),
        }
    }

    /// Adds the packets that random access has sent and that are not yet decoded; they are not in
    /// the FIFOs.
    fn with(self, queue: Volume) -> Self {
        Self { queue, ..self }
    }
}

/// State of a direction.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Totals of all terminals; carrier and `Es/N0` are those of the first terminal.
    pub all: OfTerminal,
    /// State of each terminal; empty if there is one terminal.
    pub terminals: Vec<OfTerminal>,
}

impl Bearer {
    /// The whole direction of a terminal that has it for itself. Plans that it makes, or that its
    /// frames have, are those of `plans`.
    ///
    /// # Errors
    /// The configuration cannot be a link.
    pub fn of_one(config: LinkConfig, plans: &Assignments) -> Result<Self, LinkError> {
        if config.random_access.is_some() {
            let back: Box<dyn ReturnCarrier> = Box::new(RandomReturn::new(&[config])?);
            let carriers = Carriers::new(vec![(back, vec![0])]);
            return Ok(Self::Return(carriers, Vec::new()));
        }
        let mut link = Link::new(config)?;
        link.say(plans);
        link.hear(plans);
        Ok(Self::Alone(Box::new(link)))
    }

    /// Offers a packet that came from a terminal, or from a gateway and is for one of its
    /// terminals.
    pub(crate) fn offer(&mut self, now: Nanos, from: usize, packet: &[u8]) {
        match self {
            Self::Alone(link) => link.offer(now, packet),
            Self::Forward(links, subnets) => {
                // With one gateway it does not matter where a packet came from.
                let gateway = if subnets.len() == 1 { 0 } else { from };
                let Some(subnets) = subnets.get(gateway) else {
                    return;
                };
                let (link, terminal) = links.of_mut(subnets.terminal_of(packet));
                link.push(now, terminal, packet);
            }
            Self::Return(links, _) => {
                let (link, terminal) = links.of_mut(from);
                link.push(now, terminal, packet);
            }
        }
    }

    /// Moves the oldest packet due at or before `now` to `out`; its due time, and the terminal or
    /// gateway that it is for. Where there is one gateway, a packet to it has the terminal that it
    /// came from.
    pub(crate) fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<(Nanos, usize)> {
        match self {
            Self::Alone(link) => link.pop(now, out).map(|due| (due, 0)),
            Self::Forward(links, _) => links.pop(now, out).map(|it| (it.0, it.1)),
            Self::Return(links, gateways) => {
                let (due, terminal, carrier) = links.pop(now, out)?;
                Some((due, gateways.get(carrier).copied().unwrap_or(terminal)))
            }
        }
    }

    /// Changes the link of one terminal; `None`: of all terminals.
    pub(crate) fn set(
        &mut self,
        now: Nanos,
        terminal: Option<usize>,
        change: &Change,
    ) -> Result<(), LinkError> {
        if let (Change::Transfer(to), Some(index)) = (change, terminal) {
            match self {
                Self::Alone(_) => {}
                Self::Forward(links, _) => return links.transfer(now, index, to),
                Self::Return(links, _) => return links.transfer(now, index, to),
            }
        }
        let count = match self {
            Self::Alone(link) => return link.set(now, change),
            Self::Forward(links, _) => links.count(),
            Self::Return(links, _) => links.count(),
        };
        let of = terminal.map_or(0..count, |index| index..(index + 1).min(count));
        for index in of {
            match self {
                Self::Alone(_) => {}
                Self::Forward(links, _) => {
                    let (link, own) = links.of_mut(index);
                    link.set(now, own, change)?;
                }
                Self::Return(links, _) => {
                    let (link, own) = links.of_mut(index);
                    link.set(now, own, change)?;
                }
            }
        }
        Ok(())
    }

    /// Next moment at which there may be something to do.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        match self {
            Self::Alone(link) => link.next_event(),
            Self::Forward(links, _) => links.next_event(),
            // A plan is made after the moment that it is due at.
            Self::Return(links, _) => {
                let plans = links.iter().filter_map(ReturnCarrier::next_plan);
                let plans = plans.map(|at| at.saturating_add(1));
                links.next_event().into_iter().chain(plans).min()
            }
        }
    }

    /// Longest time that input may wait to be read without leaving late, ns.
    pub(crate) fn patience(&mut self) -> Nanos {
        match self {
            Self::Alone(link) => link.patience(),
            Self::Forward(links, _) => {
                let delays = (0..links.count()).map(|it| {
                    let (link, own) = links.of(it);
                    link.config(own).delay
                });
                delays.min().unwrap_or(0) / 2
            }
            // Of a carrier, whose terminals have the same.
            Self::Return(links, _) => {
                let delays = links.iter().map(|link| link.config(0).delay);
                delays.min().unwrap_or(Nanos::MAX) / 2
            }
        }
    }

    /// Moves the oldest plan for the terminal in another process to `out`; false: none.
    pub(crate) fn take_plan(&mut self, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Alone(link) => link.take_plan(out),
            Self::Forward(..) | Self::Return(..) => false,
        }
    }

    /// What the direction did up to `now`.
    pub(crate) fn state(&mut self, now: Nanos) -> State {
        match self {
            Self::Alone(link) => State {
                all: OfTerminal {
                    es_n0_db: link.es_n0_db(),
                    ..OfTerminal::new(&link.counters(), link.fifos(), link.config())
                },
                terminals: Vec::new(),
            },
            Self::Forward(links, _) => {
                let count = links.count();
                let mut of = |it| {
                    let mut sum = Counters::default();
                    let stays = links.stays_mut(it);
                    stays.for_each(|(link, own)| sum += link.counters(own));
                    let (link, own) = links.of_mut(it);
                    let fifos = link.fifos(own);
                    OfTerminal::new(&sum, fifos, link.config(own))
                };
                let terminals = (0..count).map(&mut of).collect();
                let mut carriers = Counters::default();
                links
                    .iter()
                    .for_each(|link| carriers += link.carrier_counters());
                together(terminals, |sum| Counters {
                    // What the frames held, whoever they were for.
                    frames_sent: carriers.frames_sent,
                    frame_bytes_available: carriers.frame_bytes_available,
                    frame_bytes_used: carriers.frame_bytes_used,
                    frames_by_id: carriers.frames_by_id,
                    signalling_bytes: carriers.signalling_bytes,
                    packets_marked: carriers.packets_marked,
                    ..sum
                })
            }
            Self::Return(links, _) => {
                let count = links.count();
                let mut of = |it| {
                    let mut sum = Counters::default();
                    let stays = links.stays_mut(it);
                    stays.for_each(|(link, own)| sum += link.counters(now, own));
                    let (link, own) = links.of_mut(it);
                    let (queue, fifos) = (link.queue(own), link.fifos(own));
                    OfTerminal::new(&sum, fifos, link.config(own)).with(queue)
                };
                let mut terminals: Vec<_> = (0..count).map(&mut of).collect();
                if count == 1 {
                    return State {
                        all: terminals.remove(0),
                        terminals,
                    };
                }
                // Each terminal counts those of its carrier; the carriers have the same
                // superframes.
                let of_carriers: Vec<_> = links.iter_mut().map(|it| it.superframes(now)).collect();
                let superframes = of_carriers.iter().map(|it| it.superframes).max();
                together(terminals, |sum| Counters {
                    superframes: superframes.unwrap_or(0),
                    slots_free: of_carriers.iter().map(|it| it.slots_free).sum(),
                    slots_signalling: of_carriers.iter().map(|it| it.slots_signalling).sum(),
                    ..sum
                })
            }
        }
    }
}

/// The terminals and their sum, `shared` being what each of them counts.
fn together(terminals: Vec<OfTerminal>, shared: impl FnOnce(Counters) -> Counters) -> State {
    let mut sum = Counters::default();
    for one in &terminals {
        sum += one.counters;
    }
    let queue = terminals.iter().map(|it| it.queue).sum();
    let first = terminals.first();
    State {
        all: OfTerminal {
            counters: shared(sum),
            queue,
            carrier: first.map_or(Carrier::Wire, |it| it.carrier),
            es_n0_db: first.and_then(|it| it.es_n0_db),
            fifos: Vec::new(),
        },
        terminals,
    }
}
