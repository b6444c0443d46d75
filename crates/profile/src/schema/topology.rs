// SPDX-License-Identifier: GPL-3.0-or-later
//! Elements of `topology.xml`.

use super::{
    BURST, CODING, DECIBEL, DURATION_MS, Element, GROUP, ID, INT, MODULATION, POSITIVE, Type,
    UBYTE, UINT, USHORT, include, leaf, list, section,
};

const REGENERATION: Type = Type::Choice(&["Transparent"], &["BBFrame", "IP"]);

const SPOT: &[Element] = &[
    section(
        "assignments",
        &[
            leaf("gateway_id", ID),
            leaf("sat_id_gw", ID),
            leaf("sat_id_st", ID),
            leaf("forward_regen_level", REGENERATION),
            leaf("return_regen_level", REGENERATION),
        ],
    ),
    section(
        "roll_off",
        &[
            leaf("forward", Type::Dec(0.0, 1.0)),
            leaf("return", Type::Dec(0.0, 1.0)),
        ],
    ),
    list(
        "forward_band",
        1,
        &[
            // kHz; 10 GHz is beyond any carrier and keeps a frame longer than a microsecond.
            leaf("bandwidth", Type::Int(1, 10_000_000)),
            leaf("type", Type::Choice(&["ACM"], &["VCM"])),
            leaf("wave_form", Type::WaveForms),
            leaf("group", GROUP),
            leaf("ratio", Type::Text).when("type", "VCM"),
        ],
    ),
    list(
        "return_band",
        1,
        &[
            leaf("bandwidth", Type::Int(1, 10_000_000)),
            leaf("type", Type::Choice(&["DAMA", "SCPC", "ALOHA"], &[])),
            leaf("wave_form", Type::WaveForms),
            leaf("group", GROUP),
        ],
    ),
];

const WAVE_FORM: &[Element] = &[
    leaf("id", UBYTE),
    leaf("modulation", MODULATION),
    leaf("coding", CODING),
    leaf("efficiency", Type::Dec(0.01, 20.0)),
    leaf("threshold", DECIBEL),
];

/// topology.xml, below `model/root`.
pub(crate) const TOPOLOGY: &[Element] = &[
    section("frequency_plan", &[list("spots", 1, SPOT)]),
    section(
        "st_assignment",
        &[
            section(
                "defaults",
                &[leaf("default_gateway", ID), leaf("default_group", GROUP)],
            ),
            list(
                "assignments",
                0,
                &[
                    leaf("terminal_id", ID),
                    leaf("gateway_id", ID),
                    leaf("group", GROUP),
                ],
            ),
        ],
    ),
    section(
        "wave_forms",
        &[
            list("dvb_s2", 1, WAVE_FORM),
            list(
                "dvb_rcs2",
                1,
                &[include(WAVE_FORM), leaf("burst_length", BURST)],
            ),
        ],
    ),
    section(
        "advanced_settings",
        &[
            section(
                "links",
                &[
                    leaf("forward_duration", DURATION_MS),
                    leaf("forward_margin", DECIBEL),
                    leaf("return_duration", DURATION_MS),
                    leaf("return_margin", DECIBEL),
                ],
            ),
            section(
                "schedulers",
                &[
                    leaf("burst_length", BURST),
                    leaf("crdsa_frame", USHORT),
                    leaf("crdsa_delay", UINT),
                    leaf("pep_allocation", INT),
                ],
            ),
            section(
                "timers",
                &[
                    leaf("statistics", POSITIVE),
                    leaf("synchro", POSITIVE),
                    leaf("acm_refresh", POSITIVE),
                ],
            ),
            section(
                "delay",
                &[
                    leaf("fifo_size", Type::Int(1, u64::MAX)),
                    leaf("delay_timer", POSITIVE),
                ],
            ),
        ],
    ),
];
