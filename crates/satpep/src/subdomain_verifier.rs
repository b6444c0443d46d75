// SPDX-License-Identifier: GPL-3.0-or-later
//! Verifies a server's certificate for the domains below a host: it is checked for the host's name.
//!
//! A page of the lab has objects on domains below its host. The host's certificate has no name of
//! theirs, or browsers would use one connection for all (RFC 9114 section 3.3), unlike those of the
//! many servers that such pages have elsewhere.

use std::path::Path;
use std::sync::Arc;

use quic::TlsError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Returns the TLS of [`quic::client_tls`] for next hops that serve the domains below `hosts` as
/// these hosts.
///
/// # Errors
/// As for [`quic::client_tls`].
pub fn client_tls(
    ca: &Path,
    zero_rtt: bool,
    hosts: &[DnsName<'static>],
) -> Result<ClientConfig, TlsError> {
    let mut config = quic::client_tls(ca, zero_rtt)?;
    if !hosts.is_empty() {
        let verifier = HostVerifier {
            verifier: quic::server_verifier(ca)?,
            hosts: hosts.to_vec(),
        };
        // "Dangerous" as nothing keeps a verifier from accepting all. This one leaves all checks to
        // rustls's own.
        config
            .dangerous()
            .set_certificate_verifier(Arc::new(verifier));
    }
    Ok(config)
}

/// Reads a host for `--domains-of`.
///
/// # Errors
/// It is not a domain name of two labels or more.
pub fn host(text: &str) -> Result<DnsName<'static>, String> {
    DnsName::try_from(text.to_ascii_lowercase())
        .ok()
        .filter(|name| name.as_ref().trim_end_matches('.').contains('.'))
        .ok_or_else(|| "is not a domain name of two labels or more".into())
}

/// Checks certificates as rustls does, for the name of [`certificate_name`].
#[derive(Debug)]
struct HostVerifier {
    verifier: Arc<WebPkiServerVerifier>,
    hosts: Vec<DnsName<'static>>,
}

/// Returns the name that a certificate for `name` must have: the nearest of `hosts` above `name`,
/// or `name` itself if there is none.
fn certificate_name<'a>(name: &ServerName<'a>, hosts: &[DnsName<'static>]) -> ServerName<'a> {
    let ServerName::DnsName(domain) = name else {
        return name.clone();
    };
    let domain = domain.as_ref().to_ascii_lowercase();
    let is_above = |host: &&DnsName<'static>| {
        let before = domain.strip_suffix(host.as_ref());
        before.is_some_and(|labels| labels.ends_with('.'))
    };
    (hosts.iter().filter(is_above))
        .max_by_key(|host| host.as_ref().len())
        .map_or_else(|| name.clone(), |host| ServerName::DnsName(host.clone()))
}

impl ServerCertVerifier for HostVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let name = certificate_name(server_name, &self.hosts);
        let verifier = &self.verifier;
        verifier.verify_server_cert(end_entity, intermediates, &name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        (self.verifier).verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        (self.verifier).verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.verifier.root_hint_subjects()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, hosts: &[&str]) -> String {
        let hosts: Vec<_> = hosts.iter().map(|text| host(text).unwrap()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        certificate_name(&name, &hosts).to_str().into_owned()
    }

    #[test]
    fn domains_below_a_host_need_its_certificate_and_others_their_own() {
        let hosts = ["shop.test", "Static.Shop.Test"];
        for (name, expected) in [
            ("cdn.shop.test", "shop.test"),
            ("a.b.SHOP.test", "shop.test"),
            ("a.static.shop.test", "static.shop.test"),
            ("static.shop.test", "shop.test"),
            ("shop.test", "shop.test"),
            ("xshop.test", "xshop.test"),
            ("shop.test.example", "shop.test.example"),
            ("127.0.0.1", "127.0.0.1"),
        ] {
            assert_eq!(checked(name, &hosts), expected, "{name}");
            assert_eq!(checked(name, &[]), name);
        }
    }

    #[test]
    fn a_host_is_a_name_of_two_labels_or_more() {
        assert_eq!(host("Shop.Test").unwrap().as_ref(), "shop.test");
        for text in [
            "",
            "test",
            "test.",
            ".test",
            "a b.test",
            "*.test",
            "127.0.0.1",
        ] {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
