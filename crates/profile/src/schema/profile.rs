// SPDX-License-Identifier: GPL-3.0-or-later
//! Elements of `profile_st.xml` and `profile_gw.xml`.

use super::{
    DECIBEL, Element, GROUP, INT, LAN_FRAMES, OFF, PORT, POSITIVE, SAT_FRAMES, Type, UBYTE, UINT,
    USHORT, include, leaf, list, refused_list, section,
};

const CONTROL_PLANE: Element =
    section("control_plane", &[leaf("disable_control_plane", OFF)]).spared();

const QOS: &[Element] = &[
    list(
        "qos_classes",
        1,
        &[
            leaf("pcp", Type::Int(0, 7)),
            leaf("name", Type::Text),
            leaf("fifo", Type::Text),
        ],
    ),
    refused_list(
        "virtual_connections",
        &[
            leaf("id", UBYTE),
            leaf("mac_src", Type::Mac),
            leaf("mac_dst", Type::Mac),
            leaf("tci_802_1q", USHORT),
            leaf("tci_802_1ad", USHORT),
            leaf("protocol", Type::Text),
        ],
    ),
    section(
        "qos_settings",
        &[
            leaf("lan_frame_type", LAN_FRAMES),
            leaf("sat_frame_type", SAT_FRAMES),
            leaf("default_pcp", Type::Int(0, 7)),
        ],
    ),
];

const FIFO: &[Element] = &[
    leaf("priority", UBYTE),
    leaf("name", Type::Text),
    leaf("capacity", Type::Int(1, 65_535)),
];

const ENCAP: Element = section(
    "encap",
    &[
        section(
            "gse",
            &[
                leaf("max_frag_id", Type::Int(1, 255)),
                leaf("decap_buffer_len", PORT),
                leaf("compatibility_mode", Type::Bool),
            ],
        ),
        section(
            "rle",
            &[leaf(
                "alpdu_protection",
                Type::Choice(&["Sequence Number", "CRC"], &[]),
            )],
        ),
    ],
)
.spared();

const ATTENUATION: &[Element] = &[
    leaf("clear_sky", DECIBEL),
    leaf(
        "attenuation_type",
        Type::Choice(&["Ideal", "File", "On/Off", "Triangular"], &[]),
    ),
    leaf("file_attenuation_file", Type::Text).when("attenuation_type", "File"),
    leaf("file_attenuation_loop", Type::Bool).when("attenuation_type", "File"),
    leaf("ideal_attenuation_value", DECIBEL).when("attenuation_type", "Ideal"),
    leaf("onoff_attenuation_on", INT).when("attenuation_type", "On/Off"),
    leaf("onoff_attenuation_off", INT).when("attenuation_type", "On/Off"),
    leaf("onoff_attenuation_amplitude", DECIBEL).when("attenuation_type", "On/Off"),
    leaf("triangle_attenuation_slope", DECIBEL).when("attenuation_type", "Triangular"),
    leaf("triangle_attenuation_period", INT).when("attenuation_type", "Triangular"),
];

const PHYSICAL_LAYER: Element = section(
    "physical_layer",
    &[
        section(
            "delay",
            &[
                leaf(
                    "delay_type",
                    Type::Choice(&["ConstantDelay", "FileDelay"], &[]),
                ),
                leaf("delay_value", Type::Int(0, 10_000)).when("delay_type", "ConstantDelay"),
                leaf("file_path", Type::Text).when("delay_type", "FileDelay"),
                leaf("refresh_period", POSITIVE).when("delay_type", "FileDelay"),
                leaf("loop", Type::Bool).when("delay_type", "FileDelay"),
            ],
        ),
        section(
            "minimal_condition",
            &[
                leaf(
                    "minimal_condition_type",
                    Type::Choice(&["ACM-Loop", "Constant"], &[]),
                ),
                leaf("threshold", DECIBEL).when("minimal_condition_type", "Constant"),
            ],
        ),
        section(
            "error_insertion",
            &[leaf("error_insertion_type", Type::Choice(&["Gate"], &[]))],
        ),
        section("uplink_attenuation", ATTENUATION),
        section("downlink_attenuation", ATTENUATION),
    ],
);

/// Where an ST's demand assignment is switched, seen from `access/dama`.
const DAMA_ENABLED: &str = "../settings/dama_enabled";
/// The same of its random access, seen from `access/random_access`.
const RA_ENABLED: &str = "../settings/ra_enabled";

const SCPC: Element = section(
    "scpc",
    &[leaf("carrier_duration", Type::Int(1, i32::MAX as u64)).optional()],
);

/// `profile_st.xml`, below `model/root`.
pub(crate) const PROFILE_ST: &[Element] = &[
    CONTROL_PLANE,
    section(
        "network",
        &[
            include(QOS),
            list(
                "st_fifos",
                1,
                &[
                    include(FIFO),
                    leaf(
                        "access_type",
                        Type::Choice(&["DAMA_CRA", "DAMA_RBDC", "DAMA_VBDC", "SALOHA"], &[]),
                    ),
                ],
            ),
        ],
    ),
    ENCAP,
    section(
        "access",
        &[
            section(
                "settings",
                &[
                    leaf("category", GROUP),
                    leaf("dama_enabled", Type::Bool),
                    leaf("ra_enabled", Type::Bool).optional(),
                    leaf("scpc_enabled", Type::Bool).optional(),
                ],
            ),
            section(
                "dama",
                &[
                    leaf("cra", UINT).when(DAMA_ENABLED, "true"),
                    leaf("rbdc_enabled", Type::Bool).optional(),
                    leaf("rbdc_max", UINT).when("rbdc_enabled", "true"),
                    leaf("vbdc_enabled", Type::Bool).optional(),
                    leaf("vbdc_max", UINT).when("vbdc_enabled", "true"),
                    leaf("algorithm", Type::Choice(&["Legacy"], &[])).when(DAMA_ENABLED, "true"),
                    leaf("duration", Type::Int(1, 65_535)).when(DAMA_ENABLED, "true"),
                ],
            ),
            section(
                "random_access",
                &[
                    leaf("timeout", USHORT).when(RA_ENABLED, "true"),
                    leaf("replicas", USHORT).when(RA_ENABLED, "true"),
                    leaf("max_packets", USHORT).when(RA_ENABLED, "true"),
                    leaf("max_retry", USHORT).when(RA_ENABLED, "true"),
                    leaf("backoff_algo", Type::Choice(&["BEB", "EIED", "MIMD"], &[]))
                        .when(RA_ENABLED, "true"),
                    leaf("max_cw", USHORT).when(RA_ENABLED, "true"),
                    leaf("backoff_multiple", USHORT).when(RA_ENABLED, "true"),
                ],
            ),
            SCPC,
        ],
    ),
    section("access2", &[SCPC]).spared(),
    PHYSICAL_LAYER,
];

/// `profile_gw.xml`, below `model/root`.
pub(crate) const PROFILE_GW: &[Element] = &[
    CONTROL_PLANE,
    section(
        "network",
        &[
            include(QOS),
            leaf("event_file", Type::Text).optional(),
            list(
                "gw_fifos",
                1,
                &[
                    include(FIFO),
                    leaf(
                        "access_type",
                        Type::Choice(&["ACM"], &["VCM0", "VCM1", "VCM2", "VCM3"]),
                    ),
                ],
            ),
            leaf("simulation", Type::Choice(&["None"], &["Random", "File"])),
            leaf("simulation_file", Type::Text).when("simulation", "File"),
            leaf("simulation_nb_station", INT).when("simulation", "Random"),
            leaf("simulation_rt_bandwidth", INT).when("simulation", "Random"),
            leaf("simulation_max_rbdc", INT).when("simulation", "Random"),
            leaf("simulation_max_vbdc", INT).when("simulation", "Random"),
            leaf("simulation_mean_requests", INT).when("simulation", "Random"),
            leaf("simulation_amplitude_request", INT).when("simulation", "Random"),
            leaf("fca", UINT),
            leaf("dama_algorithm", Type::Choice(&["Legacy"], &[])),
        ],
    ),
    ENCAP,
    section(
        "access",
        &[
            section(
                "random_access",
                &[leaf("saloha_algo", Type::Choice(&["CRDSA", "DSA"], &[])).optional()],
            ),
            refused_list(
                "simulations",
                &[
                    leaf("category", GROUP),
                    leaf("max_packets", USHORT),
                    leaf("replicas", USHORT),
                    leaf("ratio", UBYTE),
                ],
            ),
        ],
    )
    .spared(),
    PHYSICAL_LAYER,
];
