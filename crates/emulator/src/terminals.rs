// SPDX-License-Identifier: GPL-3.0-or-later
//! Further terminals of `link.json`: where their packets come from, and which of them a packet is for.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::Deserialize;
use thiserror::Error;

use crate::port::Port;

/// Byte of an IPv4 packet at which the destination starts.
const DESTINATION: usize = 16;

/// A terminal next to the ST.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Further {
    /// Its device.
    pub port: Port,
    /// Its LAN: packets to these addresses are for it.
    pub subnet: Subnet,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    netns: PathBuf,
    tun: String,
    subnet: String,
}

impl TryFrom<Fields> for Further {
    type Error = NotASubnet;

    fn try_from(fields: Fields) -> Result<Self, NotASubnet> {
        Ok(Self {
            port: Port {
                netns: fields.netns,
                tun: fields.tun,
            },
            subnet: Subnet::parse(&fields.subnet).ok_or(NotASubnet)?,
        })
    }
}

/// A text that is not a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not an IPv4 subnet, e.g. 198.18.66.0/24")]
pub struct NotASubnet;

/// An IPv4 subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subnet {
    first: u32,
    last: u32,
}

impl Subnet {
    /// Reads `ADDRESS/LENGTH`, the address without host bits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let first = u32::from(address.parse::<Ipv4Addr>().ok()?);
        let length: u32 = length.parse().ok().filter(|it| (1..=32).contains(it))?;
        let hosts = u32::MAX.checked_shr(length).unwrap_or(0);
        (first & hosts == 0).then_some(Self {
            first,
            last: first | hosts,
        })
    }
}

/// Whether two of them overlap.
pub(crate) fn overlap(mut subnets: Vec<Subnet>) -> bool {
    subnets.sort_unstable();
    let mut pairs = subnets.windows(2);
    pairs.any(|pair| pair[0].last >= pair[1].first)
}

/// Which terminal a packet is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subnets {
    /// Subnets in order, with the index of their terminal.
    by_address: Vec<(Subnet, usize)>,
}

impl Subnets {
    /// Those of further terminals, whose indexes start at 1; none overlaps another.
    #[must_use]
    pub fn new(further: &[Further]) -> Self {
        let mut by_address: Vec<_> = further.iter().map(|it| it.subnet).zip(1..).collect();
        by_address.sort_unstable();
        Self { by_address }
    }

    /// Index of the terminal that a packet is for: what is for no other is for the ST, 0.
    #[must_use]
    pub fn terminal_of(&self, packet: &[u8]) -> usize {
        let destination = packet.get(DESTINATION..DESTINATION + 4);
        let Some(&[a, b, c, d]) = destination.filter(|_| packet[0] >> 4 == 4) else {
            return 0;
        };
        let address = u32::from_be_bytes([a, b, c, d]);
        let after = self
            .by_address
            .partition_point(|(subnet, _)| subnet.first <= address);
        let before = after.checked_sub(1).map(|index| self.by_address[index]);
        before
            .filter(|(subnet, _)| address <= subnet.last)
            .map_or(0, |(_, terminal)| terminal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn further(subnet: &str) -> Further {
        Further {
            port: Port {
                netns: PathBuf::from("/run/netns/x"),
                tun: "sat0".to_owned(),
            },
            subnet: Subnet::parse(subnet).unwrap(),
        }
    }

    fn packet(to: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet[16..].copy_from_slice(&to);
        packet
    }

    #[test]
    fn packets_go_to_the_terminal_of_their_destination() {
        let all = ["198.18.67.0/24", "198.18.66.0/24", "10.0.0.7/32"].map(further);
        let subnets = Subnets::new(&all);
        let of = |to| subnets.terminal_of(&packet(to));
        assert_eq!(of([198, 18, 67, 2]), 1);
        assert_eq!(of([198, 18, 66, 0]), 2);
        assert_eq!(of([198, 18, 66, 255]), 2);
        assert_eq!((of([10, 0, 0, 7]), of([10, 0, 0, 8])), (3, 0));
        assert_eq!((of([198, 18, 1, 2]), of([255, 255, 255, 255])), (0, 0));
        for odd in [&[][..], &[0x45; 19], &[0x60; 40]] {
            assert_eq!(subnets.terminal_of(odd), 0);
        }
        assert_eq!(Subnets::default().terminal_of(&packet([1, 2, 3, 4])), 0);
    }

    #[test]
    fn what_is_not_a_subnet_of_its_own_is_refused() {
        for text in [
            "",
            "1.2.3.4",
            "1.2.3.4/24",
            "1.2.3.0/33",
            "1.2.3.0/0",
            "a/8",
            "::/8",
        ] {
            assert_eq!(Subnet::parse(text), None, "{text}");
        }
        let of = |texts: [&str; 2]| texts.map(|text| Subnet::parse(text).unwrap()).to_vec();
        assert!(overlap(of(["10.1.0.0/16", "10.0.0.0/8"])));
        assert!(!overlap(of(["10.1.0.0/16", "10.2.0.0/16"])));
    }
}
