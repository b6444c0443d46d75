// SPDX-License-Identifier: GPL-3.0-or-later
//! What a user should know when comparing with the real `OpenSAND` 8.2.0.

use dvb::opensand::bbframe_symbols;

use crate::profile::Profile;
use crate::qos;

/// Differences that matter when figures are compared, and what `OpenSAND` takes otherwise than one
/// may expect.
pub(crate) fn advice(profile: &Profile) -> Vec<String> {
    let mut advice = vec![queues(profile).to_owned()];
    let settings = &profile.settings;
    // Half a tick of each direction, and 4 ms that were measured as processing and delay polls.
    let ticks_ns = settings.forward_frame_ns + settings.superframe_ns;
    let extra_ms = ticks_ns as f64 / 2e6 + 4.0;
    advice.push(format!(
        "OpenSAND 8.2.0 adds about {extra_ms:.0} ms to the mean RTT by releasing on frame ticks; timing \"standard\" does not"
    ));
    advice.push(
        "D1: OpenSAND 8.2.0 loses forward packets that do not fit the rest of a BBFRAME, 0 to 3.2 % at half load by packet size and more near capacity; satlink does so with opensand_defects".to_owned(),
    );
    if profile.return_link.scpc.is_none() && profile.return_link.waveform.id == 3 {
        advice.push(
            "D2: OpenSAND 8.2.0 loses some packet sizes with return id 3 alone; satlink does not"
                .to_owned(),
        );
    }
    if profile.gw_physical.has_open_end() || profile.st_profile.physical.has_open_end() {
        advice.push(
            "D8: after the last step OpenSAND 8.2.0 does not hold the value of a file without loop, satlink does; end the file with \"4000000000 VALUE\"".to_owned(),
        );
    }
    advice.extend(frames(profile));
    for (owner, qos) in [("ST", &profile.st_profile.qos), ("GW", &profile.gw_qos)] {
        let names = qos::unreachable(qos);
        advice.extend(names.map(|name| format!("no class of the {owner} leads to FIFO {name}")));
    }
    advice
}

/// Where the FIFOs of the profile are.
fn queues(profile: &Profile) -> &'static str {
    // A carrier without assignment has classes where frames have tags, as the forward carrier.
    let back = &profile.return_link;
    let has_classes = (back.scpc.is_some() || back.is_random) && profile.st_profile.qos.is_tagged;
    let of_st = profile.is_on_demand() || has_classes;
    match (of_st, profile.gw_qos.is_tagged) {
        (true, true) => "FIFOs and classes of the ST and of the GW are used",
        (true, false) => {
            "FIFOs and classes of the ST are used; those of the GW by OpenSAND alone: satlink has one forward queue"
        }
        (false, true) => {
            "FIFOs and classes of the GW are used; those of the ST by OpenSAND alone: satlink has one return queue"
        }
        (false, false) => {
            "FIFO capacities and classes are used by OpenSAND alone; satlink has one queue per direction"
        }
    }
}

/// Forward carriers on which a BBFRAME does not fit a frame of `OpenSAND`.
fn frames(profile: &Profile) -> impl Iterator<Item = String> {
    let frame_ns = profile.settings.forward_frame_ns;
    let carriers = profile.spots.iter().flat_map(|spot| &spot.forward);
    carriers.filter_map(move |carrier| {
        let room = u128::from(carrier.symbol_rate) * u128::from(frame_ns) / 1_000_000_000;
        let too_long = |id: &u8| {
            dvb::modcod::ModCod::by_id(*id).is_some_and(|it| u128::from(bbframe_symbols(it)) > room)
        };
        let ids: Vec<u8> = carrier.modcods.iter().map(|it| it.id).filter(too_long).collect();
        (!ids.is_empty()).then(|| {
            format!(
                "OpenSAND never sends with ids {ids:?} at {} baud: a BBFRAME is longer than a forward_duration of {} ms",
                carrier.symbol_rate,
                frame_ns as f64 / 1e6
            )
        })
    })
}
