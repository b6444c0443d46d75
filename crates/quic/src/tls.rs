// SPDX-License-Identifier: GPL-3.0-or-later
//! TLS configurations from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, ConfigSide, RootCertStore, ServerConfig, WantsVerifier};

/// Error of a TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file cannot be read or has no item of the required kind.
    #[error("{path}: no {what}: {source}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// Expected kind.
        what: &'static str,
        /// Reason.
        source: pem::Error,
    },
    /// Certificate and key do not fit, or are of a kind that rustls does not take.
    #[error("certificate or key: {0}")]
    Rustls(#[from] rustls::Error),
    /// rustls was built without the cipher suite of Initial packets.
    #[error("TLS without AES-128-GCM")]
    NoInitialSuite(#[from] NoInitialCipherSuite),
}

/// Returns a server's TLS for quinn: chain and PKCS 8 key in PEM, protocols for ALPN, 0-RTT
/// accepted with `zero_rtt`.
///
/// # Errors
/// Files that cannot be used; nothing is guessed.
pub fn server_crypto(
    cert: &Path,
    key: &Path,
    alpn: &[&[u8]],
    zero_rtt: bool,
) -> Result<QuicServerConfig, TlsError> {
    let mut config = server_tls(cert, key, zero_rtt)?;
    config.alpn_protocols = protocols(alpn);
    Ok(config.try_into()?)
}

/// Returns a server's rustls configuration without ALPN: clones share their session tickets,
/// whatever ALPN they get.
///
/// # Errors
/// As for [`server_crypto`].
pub fn server_tls(cert: &Path, key: &Path, zero_rtt: bool) -> Result<ServerConfig, TlsError> {
    let chain = certificates(cert)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(missing(key, "private key"))?;
    let mut config = tls13(ServerConfig::builder_with_provider)?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    // QUIC allows no other value (RFC 9001 section 4.6.1).
    config.max_early_data_size = if zero_rtt { u32::MAX } else { 0 };
    Ok(config)
}

/// Returns a client's TLS for quinn. Only certificates of `ca` (PEM) are trusted.
///
/// # Errors
/// Files that cannot be used.
pub fn client_crypto(
    ca: &Path,
    alpn: &[&[u8]],
    zero_rtt: bool,
) -> Result<QuicClientConfig, TlsError> {
    let mut config = client_tls(ca, zero_rtt)?;
    config.alpn_protocols = protocols(alpn);
    Ok(config.try_into()?)
}

/// Returns a client's rustls configuration without ALPN: clones share their session tickets,
/// whatever ALPN they get.
///
/// # Errors
/// As for [`client_crypto`].
pub fn client_tls(ca: &Path, zero_rtt: bool) -> Result<ClientConfig, TlsError> {
    let mut config = tls13(ClientConfig::builder_with_provider)?
        .with_root_certificates(roots(ca)?)
        .with_no_client_auth();
    config.enable_early_data = zero_rtt;
    Ok(config)
}

/// Returns what checks a server's certificate in [`client_tls`].
///
/// # Errors
/// Files that cannot be used.
pub fn server_verifier(ca: &Path) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots(ca)?), provider)
        .build()
        .map_err(|error| TlsError::Rustls(rustls::Error::General(error.to_string())))
}

fn roots(ca: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

type Builder<S, W> = ConfigBuilder<S, W>;

fn tls13<S: ConfigSide>(
    builder: fn(Arc<rustls::crypto::CryptoProvider>) -> Builder<S, rustls::WantsVersions>,
) -> Result<Builder<S, WantsVerifier>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    builder(provider).with_protocol_versions(&[&rustls::version::TLS13])
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(missing(path, "certificate"))?;
    if chain.is_empty() {
        return Err(missing(path, "certificate")(pem::Error::NoItemsFound));
    }
    Ok(chain)
}

fn missing(path: &Path, what: &'static str) -> impl Fn(pem::Error) -> TlsError {
    move |source| TlsError::Pem {
        path: path.into(),
        what,
        source,
    }
}

fn protocols(alpn: &[&[u8]]) -> Vec<Vec<u8>> {
    alpn.iter().map(|name| name.to_vec()).collect()
}
