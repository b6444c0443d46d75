# SPDX-License-Identifier: GPL-3.0-or-later
"""A certificate authority for one run: its key signs one server certificate and is then forgotten.

The browser accepts the server's public key by its pin and no other invalid certificate, so a key is
worth nothing outside its run.
"""

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = timedelta(days=2)
CLOCK_SKEW = timedelta(hours=1)  # the clocks of the VM lab's hosts may differ
Address = IPv4Address | IPv6Address


@dataclass(frozen=True)
class Pki:
    """The files, all of mode 0600: two certificates and one key (EC P-256, PKCS 8) in PEM, and the
    pin in `spki.txt`.
    """

    folder: Path
    spki: str

    @property
    def ca_cert(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def server_cert(self) -> Path:
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"


def create(folder: Path, names: Sequence[str], addresses: Sequence[Address], now: datetime) -> Pki:
    """Make `ca.crt`, `server.crt`, `server.key` and `spki.txt` in `folder` (made with mode 0700 if
    it is missing).

    The certificates are valid from an hour before `now` (aware) for two days. `names` (at least
    one) and `addresses` are the server's subject alternative names. Files of an earlier run are
    replaced. Raises OSError and ValueError.
    """
    if not names:
        raise ValueError("a server certificate needs at least one name")
    ca_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "satlab lab CA of one run")])
    ca = _builder(ca_name, ca_name, ca_key, now, is_ca=True).sign(ca_key, hashes.SHA256())
    alternatives = [*map(x509.DNSName, names), *map(x509.IPAddress, addresses)]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    server = (
        _builder(subject, ca_name, server_key, now, is_ca=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    pki = Pki(folder, spki_pin(server))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    pem = serialization.Encoding.PEM
    key_format = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write_private(pki.ca_cert, ca.public_bytes(pem))
    _write_private(pki.server_cert, server.public_bytes(pem))
    _write_private(pki.server_key, server_key.private_bytes(pem, *key_format))
    _write_private(folder / "spki.txt", f"{pki.spki}\n".encode())
    return pki


def spki_pin(certificate: x509.Certificate) -> str:
    """Return base64(SHA-256(SubjectPublicKeyInfo)), a pin as in RFC 7469, section 2.4, which
    Chromium takes.
    """
    info = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return base64.b64encode(hashlib.sha256(info).digest()).decode("ascii")


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    *,
    is_ca: bool,
) -> x509.CertificateBuilder:
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return (
        x509.CertificateBuilder(
            subject_name=subject, issuer_name=issuer, public_key=key.public_key()
        )
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now - CLOCK_SKEW + LIFE)
        .add_extension(
            x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca, **usage
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _write_private(path: Path, content: bytes) -> None:
    """Replace `path` by a new file that was never readable for others."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
