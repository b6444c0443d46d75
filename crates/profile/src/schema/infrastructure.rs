// SPDX-License-Identifier: GPL-3.0-or-later
//! Elements of `infrastructure_sat.xml`, `infrastructure_gw.xml` and `infrastructure_st.xml`: one
//! table for all three.

use super::{
    Element, ID, INT, LEVEL, PORT, Type, USHORT, include, leaf, list, refused_list, section,
};

const INTERCONNECT: &[Element] = &[
    leaf("interconnect_address", Type::Ipv4),
    leaf("interconnect_remote", Type::Ipv4),
    leaf("upward_data_port", PORT).optional(),
    leaf("downward_data_port", PORT).optional(),
    leaf("upward_sig_port", PORT).optional(),
    leaf("downward_sig_port", PORT).optional(),
    leaf("interco_udp_stack", INT).optional(),
    leaf("interco_udp_rmem", INT).optional(),
    leaf("interco_udp_wmem", INT).optional(),
];

const ISL: &[Element] = &[
    leaf("linked_sat_id", ID),
    leaf(
        "isl_type",
        Type::Choice(&["None"], &["LanAdaptation", "Interconnect"]),
    ),
    section("interconnect_params", INTERCONNECT).optional(),
    section("lan_adaptation", &[leaf("tap_name", Type::Interface)]).optional(),
];

const CARRIER_SOCKETS: &[Element] = &[
    leaf("ctrl_multicast_address", Type::Ipv4).optional(),
    leaf("data_multicast_address", Type::Ipv4).optional(),
    leaf("ctrl_out_st_port", PORT).optional(),
    leaf("ctrl_out_gw_port", PORT).optional(),
    leaf("ctrl_in_st_port", PORT).optional(),
    leaf("ctrl_in_gw_port", PORT).optional(),
    leaf("logon_out_port", PORT).optional(),
    leaf("logon_in_port", PORT).optional(),
    leaf("data_out_st_port", PORT).optional(),
    leaf("data_in_st_port", PORT).optional(),
    leaf("data_out_gw_port", PORT).optional(),
    leaf("data_in_gw_port", PORT).optional(),
    leaf("udp_stack", INT).optional(),
    leaf("udp_rmem", INT).optional(),
    leaf("udp_wmem", INT).optional(),
];

const GW_SERVICES: &[Element] = &[
    leaf("pep_port", PORT).optional(),
    leaf("svno_port", PORT).optional(),
];

const HOST: &[Element] = &[
    leaf("entity_id", ID),
    leaf("emu_address", Type::Ipv4),
    leaf("tap_iface", Type::Interface),
    leaf("mac_address", Type::Mac),
];

/// An item without address is a further MAC address behind the entity of that id.
const PLATFORM_ENTITY: &[Element] = &[
    leaf("entity_id", ID),
    leaf("emu_address", Type::Ipv4).optional(),
    leaf("mac_address", Type::Mac).optional(),
];

const ENTITY: &[Element] = &[
    leaf(
        "entity_type",
        Type::Choice(
            &["Gateway", "Satellite", "Terminal"],
            &["Gateway Net Access", "Gateway Phy"],
        ),
    ),
    section(
        "entity_sat",
        &[
            leaf("entity_id", ID),
            leaf("emu_address", Type::Ipv4),
            refused_list("isl_settings", ISL),
        ],
    )
    .when("entity_type", "Satellite"),
    section(
        "entity_gw",
        &[
            include(HOST),
            include(CARRIER_SOCKETS),
            include(GW_SERVICES),
        ],
    )
    .when("entity_type", "Gateway"),
    section(
        "entity_gw_net_acc",
        &[
            leaf("entity_id", ID),
            leaf("tap_iface", Type::Interface),
            leaf("mac_address", Type::Mac),
            section("interconnect_params", INTERCONNECT),
            include(GW_SERVICES),
        ],
    )
    .when("entity_type", "Gateway Net Access"),
    section(
        "entity_gw_phy",
        &[
            leaf("entity_id", ID),
            section("interconnect_params", INTERCONNECT),
            leaf("emu_address", Type::Ipv4),
            include(CARRIER_SOCKETS),
        ],
    )
    .when("entity_type", "Gateway Phy"),
    section(
        "entity_st",
        &[
            include(HOST),
            leaf("qos_server_host", Type::Text).optional(),
            leaf("qos_server_port", PORT).optional(),
        ],
    )
    .when("entity_type", "Terminal"),
];

/// infrastructure.xml, below `model/root`.
pub(crate) const INFRASTRUCTURE: &[Element] = &[
    section("entity", ENTITY),
    section(
        "logs",
        &[
            section("init", &[leaf("level", LEVEL)]),
            section("lan_adaptation", &[leaf("level", LEVEL)]),
            section("dvb", &[leaf("level", LEVEL)]),
            section("physical_layer", &[leaf("level", LEVEL)]),
            section("sat_carrier", &[leaf("level", LEVEL)]),
            list(
                "extra_levels",
                0,
                &[leaf("name", Type::Text), leaf("level", LEVEL)],
            ),
        ],
    ),
    section(
        "storage",
        &[
            leaf("enable_local", Type::Bool).optional(),
            leaf("path_local", Type::Text).when("enable_local", "true"),
            leaf("enable_collector", Type::Bool).optional(),
            leaf("collector_address", Type::Text).when("enable_collector", "true"),
            leaf("collector_logs", PORT).optional(),
            leaf("collector_probes", PORT).optional(),
        ],
    )
    .spared(),
    section(
        "infrastructure",
        &[
            list(
                "satellites",
                1,
                &[leaf("entity_id", ID), leaf("emu_address", Type::Ipv4)],
            ),
            list(
                "gateways",
                1,
                &[include(PLATFORM_ENTITY), include(CARRIER_SOCKETS)],
            ),
            list("terminals", 1, PLATFORM_ENTITY),
            leaf("default_gw", USHORT).optional(),
        ],
    ),
];
