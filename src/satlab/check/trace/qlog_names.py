# SPDX-License-Identifier: GPL-3.0-or-later
"""Names in qlog files that satlab knows: those of draft-ietf-quic-qlog-quic-events, from its first
draft (0.3 has other names than 0.4) to the current one, and those that programs use instead.
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


WINDOWS = ("congestion_window", "cwnd", "current_cwnd")
"""The congestion window; the last name is mvfst's."""
METRICS = ("bytes_in_flight", "smoothed_rtt", "ssthresh", "pacing_rate")
CREDITS = ("data", "stream_data_uni", "stream_data_bidi_local", "stream_data_bidi_remote")
"""Transport parameters, after `initial_max_`."""

_PACKET = _names(
    "header frames raw packet_type is_coalesced datagram_id trigger retry_token supported_versions"
    " stateless_reset_token is_mtu_probe_packet path_id ecn send_at_time packet_number_space"
    " type packet_number datagram_payload_checksum"
)
_METRICS = _names(
    "min_rtt smoothed_rtt latest_rtt rtt_variance pto_count packets_in_flight path_id app_limited"
    " ack_delay congestion_event state recovery_state cf_lost_packets cf_lost_bytes"
)
_PARAMETERS = _names(
    "owner initiator resumption_allowed early_data_enabled tls_cipher alpn sni proposed_alpn"
    " original_destination_connection_id original_connection_id initial_source_connection_id"
    " retry_source_connection_id stateless_reset_token disable_active_migration max_idle_timeout"
    " idle_timeout max_udp_payload_size max_packet_size ack_delay_exponent max_ack_delay"
    " min_ack_delay active_connection_id_limit initial_max_streams_bidi initial_max_streams_uni"
    " preferred_address unknown_parameters max_datagram_frame_size grease_quic_bit"
    " handshake_connection_id enable_time_stamp reset_stream_at enable_loss_bit initial_max_path_id"
)
FIELDS = {
    "packet_sent": _PACKET,
    "packet_received": _PACKET,
    "packet_lost": _PACKET,
    "packets_lost": frozenset({"largest_lost_packet_num", "lost_bytes", "lost_packets"}),
    "metrics_updated": _METRICS | {*WINDOWS, *METRICS},
    "metric_update": _METRICS | {*WINDOWS, *METRICS},
    "congestion_metric_update": _METRICS | {*WINDOWS, *METRICS},
    "parameters_set": _PARAMETERS | {f"initial_max_{name}" for name in CREDITS},
}
"""Fields of the events that are read, by event."""

UNUSED_EVENTS = _names(
    # Transport, recovery, security and connectivity.
    "server_listening connection_started connection_closed connection_close connection_id_updated"
    " spin_bit_updated connection_state_updated connection_retried path_assigned tuple_assigned"
    " path_validated mtu_updated version_information alpn_information parameters_restored"
    " packet_dropped packet_drop packet_buffered packets_acked datagrams_sent datagrams_received"
    " udp_datagrams_sent udp_datagrams_received udp_datagram_dropped datagram_sent"
    " datagram_received datagram_dropped stream_state_updated frames_processed stream_data_moved"
    " datagram_data_moved connection_data_blocked_updated stream_data_blocked_updated data_moved"
    " migration_state_updated key_updated key_retired key_discarded congestion_state_updated"
    " recovery_parameters_set loss_timer_updated timer_updated marked_for_retransmit ecn_state_updated"
    # Names of draft-00 and draft-01.
    " connection_new connection_id_update spin_bit_update alpn_update version_update key_update"
    " key_retire cc_state_update"
    # Of all protocols.
    " error warning info debug verbose marker message custom"
    # mvfst.
    " transport_summary pacing_metric_update pacing_observation app_idle_update app_limited_update"
    " bandwidth_est_update loss_alarm transport_state_update stream_state_update"
    " connection_migration path_validation priority_update l4s_weight_update"
)
"""Events that satlab knows and does not need."""

FRAMES = _names(
    "padding ping ack ack_ecn reset_stream reset_stream_at rst_stream stop_sending crypto"
    " crypto_frame new_token stream max_data max_stream_data max_streams data_blocked"
    " stream_data_blocked streams_blocked new_connection_id retire_connection_id path_challenge"
    " path_response connection_close application_close handshake_done datagram ack_frequency"
    " immediate_ack time_stamp knob bdp observed_address observed_address_v4 observed_address_v6"
    " unknown"
)
