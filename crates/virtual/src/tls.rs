// SPDX-License-Identifier: GPL-3.0-or-later
//! A certificate for one process, and both ends' TLS over it. All sizes on the wire are the same in
//! every run: Ed25519 signatures and a fixed serial number.

use std::sync::Arc;

use rcgen::{Certificate, CertificateParams, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use satperf::stack::ALPN;

/// The server's name in its certificate.
pub const NAME: &str = "server.satlab.test";

/// Makes the server's certificate, self-signed, and its key.
///
/// # Errors
/// Those of the library; none depends on input.
pub fn certificate() -> Result<(Certificate, KeyPair), rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ED25519)?;
    let mut params = CertificateParams::new([NAME.to_owned()])?;
    params.serial_number = Some(SerialNumber::from(1));
    Ok((params.self_signed(&key)?, key))
}

/// An Ed25519 key as PEM of PKCS #8 version 1 (RFC 5958): `OpenSSL` and Go do not read the public
/// key of version 2.
#[must_use]
pub fn key_pem(key: &KeyPair) -> String {
    /// Version, algorithm and the length of the seed, whose 32 bytes follow in both versions (RFC
    /// 8410 section 7).
    const HEAD: [u8; 16] = [
        0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
    ];
    let whole = key.serialize_der();
    let seed = whole.get(HEAD.len()..HEAD.len() + 32).unwrap_or_default();
    pem::encode(&pem::Pem::new("PRIVATE KEY", [&HEAD, seed].concat()))
}

/// Makes the TLS of the client, which sends 0-RTT data with `zero_rtt`, and of the server. Both
/// keep their session tickets.
///
/// # Errors
/// Those of the libraries; none depends on input.
pub fn pair(zero_rtt: bool) -> Result<(ClientConfig, ServerConfig), Box<dyn std::error::Error>> {
    let (certificate, key) = certificate()?;
    let certificate = certificate.der().clone();
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
