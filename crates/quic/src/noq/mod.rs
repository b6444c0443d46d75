// SPDX-License-Identifier: GPL-3.0-or-later
//! noq's transport configuration from the options of a leg (noq-proto, a fork of quinn-proto). It
//! has `BBRv3`: its controllers set the pacing rate and learn the number of each acknowledged
//! packet.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use noq_proto::congestion::{Bbr3Config, ControllerFactory, CubicConfig, NewRenoConfig};
use noq_proto::{
    AckFrequencyConfig, ConnectionId, IdleTimeout, QlogConfig, QlogFactory, Side, TransportConfig,
    VarInt,
};

mod watch;

pub use watch::sender_state;

use crate::{CongestionControl, Fault, Faults, LegOptions, QlogFile};
use watch::ObservedFactory;

/// Returns noq's configuration of one end of a leg, as [`crate::transport`] does quinn's.
///
/// # Errors
/// Options out of range, Careful Resume, and `bbr`.
pub fn transport(options: &LegOptions) -> Result<TransportConfig, Faults> {
    options.check()?;
    let faults: Vec<_> = [
        options.careful_resume_fault("with noq"),
        options.slow_start_fault("with noq"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !faults.is_empty() {
        return Err(Faults(faults));
    }
    let varint = |value: u64| VarInt::from_u64(value).unwrap_or(VarInt::MAX);
    let idle = VarInt::from_u32(options.max_idle_ms);
    let mut config = TransportConfig::default();
    config
        .congestion_controller_factory(Arc::new(ObservedFactory(controller(options)?)))
        .receive_window(varint(options.receive_window))
        .stream_receive_window(varint(options.stream_receive_window))
        .send_window(options.send_window)
        .initial_rtt(Duration::from_millis(options.initial_rtt_ms.into()))
        .max_idle_timeout(Some(IdleTimeout::from(idle)))
        .ack_frequency_config(ack_frequency(options));
    if let Some(packets) = options.packet_threshold {
        config.packet_threshold(packets);
    }
    Ok(config)
}

fn ack_frequency(options: &LegOptions) -> Option<AckFrequencyConfig> {
    if options.ack_threshold.is_none() && options.max_ack_delay_ms.is_none() {
        return None;
    }
    let mut config = AckFrequencyConfig::default();
    if let Some(threshold) = options.ack_threshold {
        config.ack_eliciting_threshold(VarInt::from_u32(threshold));
    }
    let delay = options.max_ack_delay_ms;
    config.max_ack_delay(delay.map(|ms| Duration::from_millis(ms.into())));
    Some(config)
}

fn controller(options: &LegOptions) -> Result<Arc<dyn ControllerFactory + Send + Sync>, Faults> {
    let window = options.initial_window_bytes() + 1; // as with quinn
    Ok(match options.congestion_control {
        control @ (CongestionControl::Reno | CongestionControl::RenoQuicly) => {
            let mut config = NewRenoConfig::default();
            config.initial_window(window);
            config.loss_reduction_factor(control.loss_reduction_factor());
            Arc::new(config)
        }
        CongestionControl::Cubic => {
            let mut config = CubicConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }
        CongestionControl::Bbr3 => {
            let mut config = Bbr3Config::default();
            config.initial_window(window);
            Arc::new(config)
        }
        CongestionControl::Bbr => {
            return Err(Faults(vec![Fault {
                option: "congestion-control",
                why: "bbr (BBRv2) is not offered with noq; use bbr3, or --stack quiche".into(),
            }]));
        }
    })
}

/// Has the qlog of the only connection that is made with `config` written to `file`.
pub fn set_qlog(config: &mut TransportConfig, file: QlogFile, title: String) {
    config.qlog_factory(Arc::new(OneFile(Mutex::new(Some((file, title))))));
}

struct OneFile(Mutex<Option<(QlogFile, String)>>);

impl QlogFactory for OneFile {
    fn for_connection(
        &self,
        _: Side,
        _: SocketAddr,
        _: ConnectionId,
        now: Instant,
    ) -> Option<QlogConfig> {
        let (file, title) = self.0.lock().ok()?.take()?;
        let mut config = QlogConfig::new(Box::new(file));
        config.title(Some(title)).start_time(now);
        Some(config)
    }
}
