// SPDX-License-Identifier: GPL-3.0-or-later
//! A certificate for one process, and both ends' TLS over it. All sizes on the wire are the same in every run: Ed25519
//! signatures and a fixed serial number.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use satperf::stack::ALPN;

/// The server's name in its certificate.
pub const NAME: &str = "server.satlab.test";

/// Makes the TLS of the client, which sends 0-RTT data with `zero_rtt`, and of the server. Both keep their session tickets.
///
/// # Errors
/// Those of the libraries; none depends on input.
pub fn pair(zero_rtt: bool) -> Result<(ClientConfig, ServerConfig), Box<dyn std::error::Error>> {
    let key = KeyPair::generate_for(&PKCS_ED25519)?;
    let mut params = CertificateParams::new([NAME.to_owned()])?;
    params.serial_number = Some(SerialNumber::from(1));
    let certificate = params.self_signed(&key)?.der().clone();
    let private = PrivateKeyDer::try_from(key.serialize_der())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = &[&rustls::version::TLS13];

    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], private)?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    server.max_early_data_size = u32::MAX;

    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![ALPN.to_vec()];
    client.enable_early_data = zero_rtt;
    Ok((client, server))
}
