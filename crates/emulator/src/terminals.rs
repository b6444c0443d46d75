// SPDX-License-Identifier: GPL-3.0-or-later
//! Further terminals of `link.json`: where their packets come from, and which of them a packet is
//! for.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use thiserror::Error;

use crate::port::Port;

/// Bytes of an IPv4 packet that hold the destination, and of an IPv6 packet.
const DESTINATION: std::ops::Range<usize> = 16..20;
const DESTINATION_6: std::ops::Range<usize> = 24..40;

/// A terminal in addition to the ST.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Further {
    /// Device of the terminal.
    pub port: Port,
    /// IPv4 subnet of the terminal's LAN. Packets to these addresses go to this terminal.
    pub subnet: Subnet,
    /// IPv6 subnet of the terminal's LAN, if the LAN has one.
    pub subnet6: Option<Subnet>,
    /// Addresses of the terminal on the satellite link, each a subnet of one address. Packets to
    /// them also go to this terminal.
    pub own: [Option<Subnet>; 2],
    /// Id of the terminal in the profile; `None`: the terminal is equal to the ST.
    pub id: Option<u8>,
}

/// A terminal in addition to the ST.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "terminal")]
pub(crate) struct Fields {
    /// path of the network namespace, e.g. /run/netns/NAME
    #[schemars(length(min = 1))]
    netns: PathBuf,
    #[schemars(length(min = 1, max = 15))]
    tun: String,
    /// IPv4 subnet of the terminal's LAN; packets to these addresses go to this terminal
    #[schemars(extend("format" = "ipv4-subnet"))]
    #[schemars(extend("remedy" = "an IPv4 subnet, e.g. \"198.18.66.0/24\""))]
    subnet: String,
    /// IPv6 subnet of the terminal's LAN; null or left out: none
    #[schemars(extend("format" = "ipv6-subnet"))]
    #[schemars(extend("remedy" = "an IPv6 subnet, e.g. \"2001:2:0:1242::/64\""))]
    subnet6: Option<String>,
    /// IPv4 address of the terminal on the satellite link; packets to it also go to this terminal.
    /// null or left out: packets to that address go to the ST
    #[schemars(extend("format" = "ipv4-subnet"))]
    #[schemars(extend("remedy" = "an IPv4 address as a subnet of one, e.g. \"198.18.63.3/32\""))]
    address: Option<String>,
    /// IPv6 address of the terminal on the satellite link, as address
    #[schemars(extend("format" = "ipv6-subnet"))]
    #[schemars(extend("remedy" = "an IPv6 address as a subnet of one, e.g. \"2001:2:0:123f::3/128\""))]
    address6: Option<String>,
    /// id of the terminal in the profile; either all further terminals have an id, or none. null or
    /// left out: equal to the ST
    #[schemars(range(min = 0, max = 30))]
    id: Option<u8>,
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
            subnet6: given(fields.subnet6, Subnet::parse6)?,
            own: [
                given(fields.address, Subnet::parse)?,
                given(fields.address6, Subnet::parse6)?,
            ],
            id: fields.id,
        })
    }
}

fn given(
    text: Option<String>,
    parse: impl Fn(&str) -> Option<Subnet>,
) -> Result<Option<Subnet>, NotASubnet> {
    text.map(|it| parse(&it).ok_or(NotASubnet)).transpose()
}

/// A text that is not a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a subnet, e.g. 198.18.66.0/24 or 2001:2:0:1242::/64")]
pub struct NotASubnet;

/// A subnet of IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subnet {
    first: u128,
    last: u128,
}

impl Subnet {
    /// Reads `ADDRESS/LENGTH` of IPv4, the address without host bits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let first = u32::from(address.parse::<Ipv4Addr>().ok()?);
        let length: u32 = length.parse().ok().filter(|it| (1..=32).contains(it))?;
        let hosts = u32::MAX.checked_shr(length).unwrap_or(0);
        Self::of(first.into(), hosts.into())
    }

    /// Reads an IPv6 subnet, as [`Subnet::parse`] reads an IPv4 subnet.
    #[must_use]
    pub fn parse6(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let first = u128::from(address.parse::<Ipv6Addr>().ok()?);
        let length: u32 = length.parse().ok().filter(|it| (1..=128).contains(it))?;
        Self::of(first, u128::MAX.checked_shr(length).unwrap_or(0))
    }

    fn of(first: u128, hosts: u128) -> Option<Self> {
        (first & hosts == 0).then_some(Self {
            first,
            last: first | hosts,
        })
    }
}

/// Whether two subnets overlap.
pub(crate) fn overlap(mut subnets: Vec<Subnet>) -> bool {
    subnets.sort_unstable();
    let mut pairs = subnets.windows(2);
    pairs.any(|pair| pair[0].last >= pair[1].first)
}

/// Returns the subnets of the terminals besides the ST, each with the index of its terminal.
fn with_index(
    further: &[Further],
    of: impl Fn(&Further) -> [Option<Subnet>; 2],
) -> Vec<(Subnet, usize)> {
    let subnets = further.iter().zip(1..);
    let subnets = subnets.flat_map(|(it, index)| of(it).map(|subnet| Some((subnet?, index))));
    subnets.flatten().collect()
}

/// Finds the terminal that a packet is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subnets {
    /// Subnets in order, with the index of their terminal.
    by_address: Vec<(Subnet, usize)>,
    /// IPv6 subnets, in the same order.
    by_address6: Vec<(Subnet, usize)>,
    /// Index of the terminal for packets that no subnet contains.
    first: usize,
}

impl Subnets {
    /// Those of further terminals, whose indexes start at 1; none overlaps another.
    #[must_use]
    pub fn new(further: &[Further]) -> Self {
        Self::of_spot(further, &(0..=further.len()).collect::<Vec<_>>())
    }

    /// Those of the terminals of one spot, by their indexes: what is for none of these is for the
    /// first of them.
    #[must_use]
    pub fn of_spot(further: &[Further], spot: &[usize]) -> Self {
        let of = |it: &Further| [Some(it.subnet), it.own[0]];
        let of6 = |it: &Further| [it.subnet6, it.own[1]];
        let own = |mut all: Vec<(Subnet, usize)>| {
            all.retain(|(_, index)| spot.contains(index));
            all.sort_unstable();
            all
        };
        Self {
            by_address: own(with_index(further, of)),
            by_address6: own(with_index(further, of6)),
            first: spot.first().copied().unwrap_or(0),
        }
    }

    /// Index of the terminal that a packet is for: what is for no other is for the first, the ST or
    /// that of the spot.
    #[must_use]
    pub fn terminal_of(&self, packet: &[u8]) -> usize {
        let (subnets, place) = match packet.first().map(|byte| byte >> 4) {
            Some(4) => (&self.by_address, DESTINATION),
            Some(6) => (&self.by_address6, DESTINATION_6),
            _ => return self.first,
        };
        let Some(destination) = packet.get(place) else {
            return self.first;
        };
        let with_byte = |address: u128, &byte: &u8| address << 8 | u128::from(byte);
        let address = destination.iter().fold(0, with_byte);
        let after = subnets.partition_point(|(subnet, _)| subnet.first <= address);
        let before = after.checked_sub(1).map(|index| subnets[index]);
        before
            .filter(|(subnet, _)| address <= subnet.last)
            .map_or(self.first, |(_, terminal)| terminal)
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
            subnet6: None,
            own: [None; 2],
            id: None,
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
    fn p303_packets_to_a_terminal_itself_are_for_it() {
        let all = [3, 4].map(|host| Further {
            own: [
                Subnet::parse(&format!("198.18.2.{host}/32")),
                Subnet::parse6(&format!("2001:2:0:1202::{host}/128")),
            ],
            ..further(&format!("198.18.{}.0/24", 63 + host))
        });
        let subnets = Subnets::new(&all);
        let of = |host| subnets.terminal_of(&packet([198, 18, 2, host]));
        assert_eq!([1, 2, 3, 4, 5].map(of), [0, 0, 1, 2, 0]);
        assert_eq!(subnets.terminal_of(&packet([198, 18, 66, 4])), 1);
        let of6 = |host: u8| {
            let mut packet = vec![0x60; 40];
            let to = Ipv6Addr::new(0x2001, 2, 0, 0x1202, 0, 0, 0, host.into());
            packet[24..].copy_from_slice(&to.octets());
            subnets.terminal_of(&packet)
        };
        assert_eq!([2, 3, 4, 5].map(of6), [0, 1, 2, 0]);
    }

    #[test]
    fn packets_of_ipv6_go_to_the_terminal_of_their_destination() {
        let all = [66_u8, 67].map(|byte| Further {
            subnet6: Subnet::parse6(&format!("2001:2:0:12{byte:x}::/64")),
            ..further(&format!("198.18.{byte}.0/24"))
        });
        let subnets = Subnets::new(&all);
        let of = |group: u16, host: u16| {
            let mut packet = vec![0x60; 40];
            let to = Ipv6Addr::new(0x2001, 2, 0, group, 0, 0, 0, host);
            packet[24..].copy_from_slice(&to.octets());
            subnets.terminal_of(&packet)
        };
        assert_eq!(
            (of(0x1242, 2), of(0x1243, 0), of(0x1243, 0xffff)),
            (1, 2, 2)
        );
        assert_eq!((of(0x1201, 2), of(0x1244, 2)), (0, 0));
        assert_eq!(subnets.terminal_of(&[0x60; 39]), 0);
        assert_eq!(subnets.terminal_of(&packet([198, 18, 67, 2])), 2);
        for text in [
            "2001:2::1/64",
            "2001:2::/0",
            "2001:2::/129",
            "198.18.66.0/24",
        ] {
            assert_eq!(Subnet::parse6(text), None, "{text}");
        }
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
