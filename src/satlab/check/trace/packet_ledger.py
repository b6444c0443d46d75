# SPDX-License-Identifier: GPL-3.0-or-later
"""Packet accounts of a direction: sent, dropped by a queue, lost by the link, lost by the host,
received.

The interfaces of both endpoints count sent and arrived packets. satlink's two links of a direction
(with interfaces of the host between them) count packets that enter and leave. The receiver's UDP
sockets count buffer errors. Each packet is in exactly one account:

    sent + duplicated = lost_before_link + dropped + lost + lost_between_links + unaccounted
           + lost_after_link + buffer_errors + received
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address
from typing import Any

from satlab.check.trace.pcap import Packet

WAYS = {"forward": ("terrestrial_down", "forward"), "return": ("return", "terrestrial_up")}
"""The emulated links of a direction, in the order in which packets cross them."""


@dataclass(frozen=True)
class Ledger:
    """Packets of one direction.

    `reported`: lost packets as reported by the payload's sender, which may be wrong; None: unknown.
    `duplicated`: copies that the link made; `corrupted`: packets with a flipped bit, which arrive
    and are of no use to the receiver.
    """

    sent: int
    entered: int
    dropped: int
    lost: int
    left: int
    arrived: int
    buffer_errors: int
    reported: int | None = None
    lost_between_links: int = 0
    duplicated: int = 0
    corrupted: int = 0

    @property
    def lost_before_link(self) -> int:
        return self.sent - self.entered

    @property
    def unaccounted(self) -> int:
        """Packets that entered satlink, or that it made, and were neither dropped, lost nor
        released.
        """
        inside = self.entered + self.duplicated
        return inside - self.dropped - self.lost - self.lost_between_links - self.left

    @property
    def lost_after_link(self) -> int:
        return self.left - self.arrived

    @property
    def by_host(self) -> int:
        """Packets that the host lost, at any place."""
        return (
            self.lost_before_link
            + self.lost_between_links
            + self.lost_after_link
            + self.buffer_errors
        )

    @property
    def spurious(self) -> int | None:
        """Packets that were reported lost and arrived whole; None if nothing was reported."""
        network = self.dropped + self.lost + self.corrupted + max(0, self.by_host)
        return None if self.reported is None else max(0, self.reported - network)

    @property
    def text(self) -> str:
        """Return the accounts that are not empty."""
        accounts = {
            "queue": self.dropped,
            "link": self.lost,
            "corrupted": self.corrupted,
            "host before the link": self.lost_before_link,
            "host between the links": self.lost_between_links,
            "host after the link": self.lost_after_link,
            "full socket buffer": self.buffer_errors,
            "spurious": self.spurious,
            "unaccounted": self.unaccounted,
        }
        return f"of {self.sent}: " + (
            ", ".join(f"{name} {n}" for name, n in accounts.items() if n) or "none lost"
        )

    def document(self) -> dict[str, Any]:
        derived = ("lost_before_link", "unaccounted", "lost_after_link", "by_host", "spurious")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def packets_from(packets: Iterable[Packet], source: IPv4Address) -> int:
    """Count the IPv4 packets of a source."""
    heads = (packet.head for packet in packets if len(packet.head) >= 20)
    return sum(head[0] >> 4 == 4 and head[12:16] == source.packed for head in heads)


def of(
    direction: str,
    sent: int,
    arrived: int,
    samples: Iterable[Mapping[str, Any]],
    buffer_errors: int,
    reported: int | None = None,
) -> Ledger:
    """Return the ledger of a direction (a key of WAYS); `samples`: the link's metrics during the
    transfer.
    """
    first, last = WAYS[direction]
    lines = list(samples)

    def total(way: str, name: str) -> int:
        return sum(line[way][name] for line in lines if line[way])

    dropped, lost = (
        sum(total(way, name) for way in WAYS[direction])
        for name in ("dropped_packets", "lost_packets")
    )
    duplicated, corrupted = (
        sum(line[way].get(name, 0) for line in lines for way in WAYS[direction] if line[way])
        for name in ("duplicated_packets", "corrupted_packets")
    )
    between = total(first, "out_packets") - total(last, "in_packets")
    return Ledger(
        sent,
        total(first, "in_packets"),
        dropped,
        lost,
        total(last, "out_packets"),
        arrived,
        buffer_errors,
        reported,
        between,
        duplicated,
        corrupted,
    )


def blames_host(ledgers: Mapping[str, Mapping[str, int | None]] | None, direction: str) -> bool:
    """Return whether the host lost more packets of a direction than link and queues together."""
    found = (ledgers or {}).get(direction, {})
    by_host, dropped, lost = (found.get(name) or 0 for name in ("by_host", "dropped", "lost"))
    return by_host > dropped + lost
