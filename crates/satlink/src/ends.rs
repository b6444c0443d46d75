// SPDX-License-Identifier: GPL-3.0-or-later
//! The ends of a path: TUN devices in their namespaces, and UDP sockets between processes.

use std::io;

use cli::Failure;
use emulator::config::{Config, Emulation, Port};

use crate::devices::End;
use crate::entity::{Air, Entity, Role};
use crate::terminals::Terminals;
use crate::tun::Tun;

/// Input and output of each direction that is served.
pub type Ends = [Option<(End, End)>; 4];

/// Opens what an entity's directions read from and write to.
///
/// # Errors
/// A device or socket cannot be opened, or the configuration has no place for this entity.
pub fn open(config: &Config, entity: Entity) -> Result<Ends, Failure> {
    if entity != Entity::All {
        return open_split(config, entity);
    }
    let satellite = match &config.satellite {
        Some([st, gw]) => Some([open_terminals(config, st)?, open_gateways(config, gw)?]),
        None => None,
    };
    let [forward, back] = satellite.map_or(Ok([None, None]), both_ways)?;
    let [down, up] = terrestrial(config)?;
    Ok([forward, back, down, up])
}

/// Ends of the terrestrial segment, down and up.
fn terrestrial(config: &Config) -> Result<[Option<(End, End)>; 2], Failure> {
    let Some([near, far]) = &config.terrestrial else {
        return Ok([None, None]);
    };
    both_ways([open_port("near", near)?, open_port("far", far)?])
}

/// From the second end to the first, and back.
fn both_ways([first, second]: [End; 2]) -> Result<[Option<(End, End)>; 2], Failure> {
    let there = (clone(&second)?, clone(&first)?);
    Ok([Some(there), Some((first, second))])
}

/// Ends of an entity's directions; the terrestrial segment is the gateway's.
fn open_split(config: &Config, entity: Entity) -> Result<Ends, Failure> {
    let lacks = |what: &str, hint: &str| Failure::usage(what.to_owned(), hint);
    let Some(emulation) = &config.emulation else {
        let what = format!(
            "--entity {}: no emulation in the configuration",
            entity.word()
        );
        return Err(lacks(
            &what,
            "set the addresses of st, sat and gw and a port: schemas/link-config.schema.json",
        ));
    };
    let Some([st, gw]) = &config.satellite else {
        return Err(lacks(
            "st and gw are null: OpenSAND carries the satellite segment",
            "set both in the configuration",
        ));
    };
    let (tun, [down, up]) = match entity {
        Entity::St => (Some(open_port("st", st)?), [None, None]),
        Entity::Gw => (Some(open_port("gw", gw)?), terrestrial(config)?),
        Entity::Sat | Entity::All => (None, [None, None]),
    };
    let ends = |direction| split_ends(entity, direction, emulation, tun.as_ref());
    Ok([ends(0)?, ends(1)?, down, up])
}

fn split_ends(
    entity: Entity,
    direction: usize,
    emulation: &Emulation,
    tun: Option<&End>,
) -> Result<Option<(End, End)>, Failure> {
    let air = Air::open(entity, direction, emulation).map_err(|error| {
        let what = format!("emulation: address of {}: {error}", entity.word());
        Failure::host(what, "run in the network namespace that has this address")
    })?;
    let air = End::Air(air);
    Ok(match (entity.role(direction), tun) {
        (Some(Role::Relays), _) => Some((clone(&air)?, air)),
        (Some(Role::Sends), Some(tun)) => Some((clone(tun)?, air)),
        (Some(Role::Receives), Some(tun)) => Some((air, clone(tun)?)),
        _ => None,
    })
}

/// The ST's device, or with further terminals one of each.
fn open_terminals(config: &Config, st: &Port) -> Result<End, Failure> {
    let further = config.terminals.iter().map(|it| &it.port);
    open_several("st", st, "terminals", further)
}

/// The GW's device, or with further gateways one of each.
fn open_gateways(config: &Config, gw: &Port) -> Result<End, Failure> {
    let further = config.gateways.iter().map(|it| &it.port);
    open_several("gw", gw, "gateways", further)
}

fn open_several<'a>(
    name: &str,
    first: &Port,
    place: &str,
    further: impl Iterator<Item = &'a Port>,
) -> Result<End, Failure> {
    let mut tuns = vec![open_tun(name, first)?];
    for (port, index) in further.zip(0..) {
        tuns.push(open_tun(&format!("{place}[{index}]"), port)?);
    }
    match (tuns.pop(), tuns.is_empty()) {
        (Some(only), true) => Ok(End::Tun(only)),
        (last, _) => {
            tuns.extend(last);
            let terminals = Terminals::new(tuns);
            terminals
                .map(End::Terminals)
                .map_err(|error| Failure::host(format!("epoll: {error}"), "see ulimit -n"))
        }
    }
}

fn open_port(name: &str, port: &Port) -> Result<End, Failure> {
    open_tun(name, port).map(End::Tun)
}

fn open_tun(name: &str, port: &Port) -> Result<Tun, Failure> {
    Tun::open(&port.netns, &port.tun).map_err(|error| {
        let what = format!("{name}: {} in {}: {error}", port.tun, port.netns.display());
        Failure::host(what, hint(&error, port))
    })
}

fn clone(end: &End) -> Result<End, Failure> {
    end.try_clone()
        .map_err(|error| Failure::host(format!("dup: {error}"), "see ulimit -n"))
}

fn hint(error: &io::Error, port: &Port) -> String {
    if !port.netns.exists() {
        return "bring the lab up first: the namespace does not exist".into();
    }
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root".into(),
        Some(libc::EBUSY) => "another process is attached to the device; end it first".into(),
        Some(libc::EINVAL) => {
            "not a TUN device, or one with other flags (needed: tun, no packet information)".into()
        }
        _ => {
            let name = port.netns.file_name().unwrap_or(port.netns.as_os_str());
            let netns = name.to_string_lossy();
            format!("ip -n {netns} tuntap add mode tun name {}", port.tun)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::example;
    use emulator::config::parse;

    #[test]
    fn what_cannot_be_opened_is_reported_with_a_remedy() {
        let config = parse(&example("geo").to_string(), &cli::read_trace).unwrap();
        let refusal = |entity| open(&config, entity).err().unwrap();
        let lacks = refusal(Entity::Sat);
        assert_eq!(lacks.status, 2);
        assert!(lacks.what.contains("--entity sat: no emulation"));
        let port = |netns: &str| Port {
            netns: netns.into(),
            tun: "sat0".to_owned(),
        };
        for (netns, number, remedy) in [
            ("/none/st", libc::ENOENT, "bring the lab up first"),
            ("/proc", libc::EPERM, "run as root"),
            ("/proc", libc::EBUSY, "end it first"),
            ("/proc", libc::EINVAL, "not a TUN device"),
            (
                "/proc",
                libc::ENODEV,
                "ip -n proc tuntap add mode tun name sat0",
            ),
        ] {
            let hint = hint(&io::Error::from_raw_os_error(number), &port(netns));
            assert!(hint.contains(remedy), "{hint}");
        }
    }
}
