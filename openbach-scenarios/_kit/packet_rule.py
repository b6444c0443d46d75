# SPDX-License-Identifier: GPL-3.0-or-later
"""An nftables rule that selects and counts packets. Each job instance has its own table with one rule."""

import argparse
import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

import collect_agent
from jobkit import JobError, ready, run, stop_event

HINT = "the job needs nftables and CAP_NET_ADMIN"
SAMPLE_S = 1.0


def selection(options: argparse.Namespace) -> list[str]:
    """Return the words that select packets; an option that is missing or None selects all."""
    selectors = (
        ("source_ip", "ip saddr {}"),
        ("destination_ip", "ip daddr {}"),
        ("in_interface", 'iifname "{}"'),
        ("out_interface", 'oifname "{}"'),
        ("protocol", "meta l4proto {}"),
        ("source_port", f"{options.protocol} sport {{}}"),
        ("destination_port", f"{options.protocol} dport {{}}"),
    )
    chosen = ((getattr(options, name, None), words) for name, words in selectors)
    return [words.format(value) for value, words in chosen if value is not None]


@dataclass(frozen=True)
class Table:
    """A table with one chain: the hook (`type filter hook input priority 0`) and its rules.

    The first rule is the one that counts.
    """

    job: str
    hook: str
    rules: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the table's name: several instances of a job may run at the same time."""
        return f"{self.job}_{int(os.environ.get('JOB_INSTANCE_ID', '0'))}"

    def text(self) -> str:
        """Return the table for nft(8), in place of what an earlier one of this name holds."""
        rules = "\n".join(self.rules)
        return (
            f"table ip {self.name}\ndelete table ip {self.name}\n"
            f"table ip {self.name} {{\nchain selected {{\n"
            f"{self.hook}; policy accept;\n{rules}\n}}\n}}\n"
        )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Have the table in the kernel for the time of the block. Raises JobError."""
        run("nft", "-f", "-", text=self.text(), hint=HINT)
        try:
            yield
        finally:
            run("nft", "delete", "table", "ip", self.name, hint=HINT)

    def counted(self) -> tuple[int, int]:
        """Return the packets and bytes that were selected so far. Raises JobError."""
        listing = json.loads(run("nft", "--json", "list", "table", "ip", self.name, hint=HINT))
        for each in listing["nftables"]:
            for expression in each.get("rule", {}).get("expr", ()):
                if counter := expression.get("counter"):
                    return int(counter["packets"]), int(counter["bytes"])
        raise JobError("the rule is gone: something else has changed the packet filter", HINT)

    def hold_until_stopped(self, what: str) -> None:
        """Hold the table until the job is stopped; each second send WHAT_packets and WHAT_bytes."""
        stop = stop_event()
        with self.held(), ready(self.job):
            stopped = False
            while not stopped:
                stopped = stop.wait(SAMPLE_S)
                packets, size = self.counted()
                figures = {f"{what}_packets": packets, f"{what}_bytes": size}
                collect_agent.send_stat(collect_agent.now(), **figures)
