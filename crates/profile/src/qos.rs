// SPDX-License-Identifier: GPL-3.0-or-later
//! Traffic classes and FIFOs of an ST or GW profile agree with each other.

use std::collections::HashMap;

use crate::check::UNSUPPORTED;
use crate::document::Place;
use crate::fault::Faults;

/// Checks `network`; `fifos` is `st_fifos` or `gw_fifos`.
pub(crate) fn check(root: &Place<'_>, fifos: &str, faults: &mut Faults) {
    let Some(network) = root.get("network") else {
        return;
    };
    let (classes, fifos) = (network.items("qos_classes"), network.items(fifos));
    check_unique(&classes, "pcp", faults);
    check_unique(&fifos, "name", faults);
    check_unique(&fifos, "priority", faults);
    let names: Vec<_> = fifos
        .iter()
        .filter_map(|fifo| fifo.get("name")?.text())
        .collect();
    for fifo in classes.iter().filter_map(|class| class.get("fifo")) {
        if let Some(name) = fifo.text().filter(|name| !names.contains(name)) {
            fifo.fault(
                faults,
                format!("there is no FIFO {name}"),
                format!("one of: {}", names.join(", ")),
            );
        }
    }
    let pcps: Vec<u64> = classes
        .iter()
        .filter_map(|class| class.value("pcp"))
        .collect();
    if let Some(pcp) = network
        .value::<u64>("qos_settings/default_pcp")
        .filter(|pcp| !pcps.contains(pcp))
    {
        let reason = format!("no class has pcp {pcp}");
        network.fault_at(
            "qos_settings/default_pcp",
            faults,
            reason,
            format!("one of {pcps:?}"),
        );
    }
    if network.value::<u64>("fca").is_some_and(|fca| fca > 0) {
        network.fault_at(
            "fca",
            faults,
            format!("free capacity assignment is {UNSUPPORTED}"),
            "write 0",
        );
    }
}

fn check_unique(items: &[Place<'_>], name: &str, faults: &mut Faults) {
    let mut seen = HashMap::new();
    for leaf in items.iter().filter_map(|item| item.get(name)) {
        let Some(text) = leaf.text() else { continue };
        if let Some(first) = seen.insert(text, leaf.source.line(leaf.node)) {
            leaf.fault(
                faults,
                format!("{text} is already used in line {first}"),
                "choose another",
            );
        }
    }
}
