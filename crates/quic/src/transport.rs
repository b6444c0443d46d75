// SPDX-License-Identifier: GPL-3.0-or-later
//! quinn's transport configuration from the options of a leg.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::{ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{AckFrequencyConfig, IdleTimeout, TransportConfig, VarInt};

use crate::options::{CongestionControl, Fault, Faults, LegOptions, SlowStart};
use crate::slow_start_search::SearchFactory;
use crate::watch::ObservedFactory;

/// Returns quinn's configuration of one end of a leg, without Careful Resume. Stream counts,
/// keep-alive and qlog are the caller's.
///
/// quinn closes a connection once one ordered stream buffers more than 1,024 separate spans, which
/// a satellite link exceeds by far; read streams unordered into a [`crate::Reassembly`], as that
/// leaves nothing in quinn's buffer.
///
/// # Errors
/// Options out of range, and `bbr`: quinn's own overshoots several-fold, and its controllers set no
/// pacing rate.
pub fn transport(options: &LegOptions) -> Result<TransportConfig, Faults> {
    options.check()?;
    let mut config = TransportConfig::default();
    config
        .congestion_controller_factory(observed(controller(options)?))
        .receive_window(varint(options.receive_window))
        .stream_receive_window(varint(options.stream_receive_window))
        .send_window(options.send_window)
        .initial_rtt(Duration::from_millis(options.initial_rtt_ms.into()))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(
            options.max_idle_ms,
        ))))
        .ack_frequency_config(ack_frequency(options));
    if let Some(packets) = options.packet_threshold {
        config.packet_threshold(packets);
    }
    Ok(config)
}

/// Returns a factory of controllers whose state [`crate::sender_state`] shows.
#[must_use]
pub fn observed(
    controllers: Arc<dyn ControllerFactory + Send + Sync>,
) -> Arc<dyn ControllerFactory + Send + Sync> {
    Arc::new(ObservedFactory(controllers))
}

/// Requests of the ACK frequency extension, if any. As the receiver still acknowledges reordered
/// packets at once (reordering threshold 2), losses are found as fast as without.
fn ack_frequency(options: &LegOptions) -> Option<AckFrequencyConfig> {
    if options.ack_threshold.is_none() && options.max_ack_delay_ms.is_none() {
        return None;
    }
    let mut config = AckFrequencyConfig::default();
    if let Some(threshold) = options.ack_threshold {
        config.ack_eliciting_threshold(VarInt::from_u32(threshold));
    }
    let delay = options
        .max_ack_delay_ms
        .map(|ms| Duration::from_millis(ms.into()));
    config.max_ack_delay(delay);
    Some(config)
}

fn controller(options: &LegOptions) -> Result<Arc<dyn ControllerFactory + Send + Sync>, Faults> {
    // quinn sends only what leaves at least one byte of the window free: with 1200 bytes it would
    // send nothing, ever.
    let window = options.initial_window_bytes() + 1;
    Ok(match options.congestion_control {
        control @ (CongestionControl::Reno | CongestionControl::RenoQuicly) => {
            let mut config = NewRenoConfig::default();
            config.initial_window(window);
            config.loss_reduction_factor(control.loss_reduction_factor());
            Arc::new(config)
        }
        CongestionControl::Cubic if options.slow_start == SlowStart::Search => {
            Arc::new(SearchFactory {
                initial_window: options.initial_window_bytes(),
            })
        }
        CongestionControl::Cubic => {
            let mut config = CubicConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }
        CongestionControl::Bbr | CongestionControl::Bbr3 => {
            let why = "bbr is not offered with quinn; use --stack quiche, or cubic";
            let why3 = "bbr3 is not offered with quinn; use --stack noq, or cubic";
            let is_3 = options.congestion_control == CongestionControl::Bbr3;
            return Err(Faults(vec![Fault {
                option: "congestion-control",
                why: (if is_3 { why3 } else { why }).into(),
            }]));
        }
    })
}

/// `check` bounds windows far below 2^62.
fn varint(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::origin;

    fn debug(options: &LegOptions) -> String {
        format!("{:?}", transport(options).unwrap())
    }

    #[test]
    fn options_arrive_at_quinn() {
        let text = debug(&LegOptions {
            ack_threshold: Some(20),
            max_ack_delay_ms: Some(100),
            packet_threshold: Some(2),
            receive_window: 1_000_000,
            stream_receive_window: 500_000,
            send_window: 2_000_000,
            initial_rtt_ms: 650,
            max_idle_ms: 5_000,
            ..LegOptions::default()
        });
        for part in [
            "receive_window: 1000000",
            "stream_receive_window: 500000",
            "send_window: 2000000",
            "initial_rtt: 650ms",
            "max_idle_timeout: Some(5000)",
            "ack_eliciting_threshold: 20",
            "max_ack_delay: Some(100ms)",
            "packet_threshold: 2",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(debug(&LegOptions::default()).contains("ack_frequency_config: None"));
    }

    #[test]
    fn initial_windows_are_packets() {
        for congestion_control in [CongestionControl::Reno, CongestionControl::Cubic] {
            let options = LegOptions {
                congestion_control,
                initial_window: 100,
                ..LegOptions::default()
            };
            let built = controller(&options).unwrap().build(origin(), 1200);
            assert_eq!(built.initial_window(), 120_001);
            assert_eq!(built.window(), 120_001);
        }
    }

    #[test]
    fn a_loss_takes_the_window_of_reno_to_a_half_and_that_of_quicly_to_0_7() {
        for (congestion_control, left) in [
            (CongestionControl::Reno, 60_000),
            (CongestionControl::RenoQuicly, 84_000),
        ] {
            let options = LegOptions {
                congestion_control,
                initial_window: 100,
                ..LegOptions::default()
            };
            let mut built = controller(&options).unwrap().build(origin(), 1200);
            let sent = origin() + Duration::from_millis(1);
            built.on_congestion_event(sent + Duration::from_secs(1), sent, false, 1200);
            assert_eq!(built.window(), left);
        }
    }

    #[test]
    fn bbr_is_refused_with_a_way_out() {
        let options = LegOptions {
            congestion_control: CongestionControl::Bbr,
            ..LegOptions::default()
        };
        assert!(
            transport(&options)
                .unwrap_err()
                .to_string()
                .contains("--stack quiche")
        );
    }
}
