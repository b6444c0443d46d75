# SPDX-License-Identifier: GPL-3.0-or-later
import base64
import hashlib
import stat
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from satlab.lab import pki

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
NAMES = ["kepler.satlab.test", "other.satlab.test"]


@pytest.fixture
def made(tmp_path: Path) -> pki.Pki:
    return pki.create(tmp_path / "pki", NAMES, [ip_address("198.18.4.2")], NOW)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_t09_files_are_private(made: pki.Pki) -> None:
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.folder.iterdir()}
    assert modes == dict.fromkeys(("ca.crt", "server.crt", "server.key", "spki.txt"), 0o600)


def test_files_of_an_earlier_run_are_replaced_and_stay_private(made: pki.Pki) -> None:
    made.server_key.chmod(0o644)
    again = pki.create(made.folder, NAMES, [], NOW)
    assert again.spki != made.spki
    assert stat.S_IMODE(again.server_key.stat().st_mode) == 0o600


def test_server_certificate_holds_for_every_name_until_it_expires(made: pki.Pki) -> None:
    ca, server = certificate(made.ca_cert), certificate(made.server_cert)
    for name in NAMES:
        for moment in (NOW, NOW + timedelta(days=1)):
            verifier = (
                PolicyBuilder()
                .store(Store([ca]))
                .time(moment)
                .build_server_verifier(x509.DNSName(name))
            )
            verifier.verify(server, [])
    late = PolicyBuilder().store(Store([ca])).time(NOW + timedelta(days=2))
    with pytest.raises(VerificationError):
        late.build_server_verifier(x509.DNSName(NAMES[0])).verify(server, [])
    wrong = PolicyBuilder().store(Store([ca])).time(NOW)
    with pytest.raises(VerificationError):
        wrong.build_server_verifier(x509.DNSName("example.test")).verify(server, [])


def test_life_is_two_days_and_addresses_are_named(made: pki.Pki) -> None:
    server = certificate(made.server_cert)
    assert server.not_valid_after_utc - server.not_valid_before_utc == timedelta(days=2)
    assert server.not_valid_before_utc < NOW
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("198.18.4.2")]


def test_key_is_p253_and_the_pin_is_its_hash(made: pki.Pki) -> None:
    key = load_pem_private_key(made.server_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    info = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    expected = base64.b64encode(hashlib.sha256(info).digest()).decode()
    assert made.spki == (made.folder / "spki.txt").read_text().strip() == expected


def test_each_run_has_its_own_authority(made: pki.Pki, tmp_path: Path) -> None:
    other = pki.create(tmp_path / "other", NAMES, [], NOW)
    verifier = PolicyBuilder().store(Store([certificate(other.ca_cert)])).time(NOW)
    with pytest.raises(VerificationError):
        verifier.build_server_verifier(x509.DNSName(NAMES[0])).verify(
            certificate(made.server_cert), []
        )


def test_a_certificate_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name"):
        pki.create(tmp_path, [], [], NOW)
