"""A certificate authority of the suite's own, and a server certificate for loopback."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from server import Tls


def files(folder: Path) -> Tls:
    """Where `make` puts them."""
    return Tls(folder / "server.pem", folder / "server.key", folder / "authority.pem")


def make(folder: Path) -> Tls:
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Warren conformance suite")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])

    def builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder().subject_name(subject).issuer_name(ca_name).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=2))
        )

    ca = builder(ca_name, ca_key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(ca_key, hashes.SHA256())
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = (
        builder(name, server_key).add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True).sign(ca_key, hashes.SHA256())
    )
    tls = files(folder)
    tls.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    tls.authority.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    tls.key.write_bytes(server_key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return tls


def trust(tls: Tls, bundle: Path) -> None:
    """Appends the authority to certifi's bundle. Starts from a copy of the original, so that a run that was killed leaves no trace in the next."""
    pristine = bundle.with_name(bundle.name + ".pristine")
    if not pristine.exists():
        pristine.write_bytes(bundle.read_bytes())
    bundle.write_bytes(pristine.read_bytes() + b"\n" + tls.authority.read_bytes())


def distrust(bundle: Path) -> None:
    """Takes the bundle back to the original."""
    bundle.write_bytes(bundle.with_name(bundle.name + ".pristine").read_bytes())
