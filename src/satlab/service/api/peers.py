# SPDX-License-Identifier: GPL-3.0-or-later
"""Peers of the service as limits count them."""

import ipaddress


def peer_network(address: str) -> str:
    """Return an IPv4 address, or the /64 of an IPv6 address, of which one host can use every
    address; "loopback" for those of this host.

    Anything else, such as the empty name of a Unix socket's peer, stays as it is.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback:
        return "loopback"
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
