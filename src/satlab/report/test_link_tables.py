# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of terminals that share a link."""

from dataclasses import replace

import pytest

from satlab.report import link_tables
from satlab.report.measurements import SummaryRecord


def row(metric: str, value: float | None, **labels: str) -> SummaryRecord:
    return SummaryRecord(
        "r1",
        "fairness",
        "geo",
        "netns",
        metric,
        value,
        None,
        "ok" if value is not None else "failed",
        "",
        labels,
    )


def of(number: int, direction: str = "forward") -> list[SummaryRecord]:
    own = {"direction": direction, "terminal": str(number)}
    return [
        row("terminal_out_bytes", 2.5e6 * number, **own),
        row("terminal_dropped_packets", 3, **own),
        row("terminal_lost_packets", 0, **own),
        row("terminal_queue_max_bytes", 1500, **own),
        *(
            row("terminal_queue_ms", ms, **own, stat=stat)
            for stat, ms in (("p50", 1), ("p95", 20), ("p99", 300))
        ),
        row("terminal_modcod_frames", 5, **own, modcod="1"),
        row("terminal_modcod_frames", 50, **own, modcod="4"),
    ]


@pytest.mark.promise("P20")
def test_each_terminal_of_each_direction_has_a_line_in_order_of_its_number() -> None:
    asked = [
        row(f"terminal_slots_{name}_mean", value, direction="return", terminal="2")
        for name, value in (("requested", 10.0), ("assigned", 12.0), ("used", 9.5))
    ]
    found = link_tables.terminal_rows(
        [*of(2, "return"), *of(10), *of(2), *asked, row("goodput_bps", 1.0)]
    )
    assert [line[:2] for line in found] == [("forward", "2"), ("forward", "10"), ("return", "2")]
    assert found[0] == (
        "forward",
        "2",
        "5.00",
        "3",
        "0",
        "1.5",
        "1",
        "20",
        "300",
        "4, 1",
        "",
        "",
        "",
    )
    assert found[2][-3:] == ("10.0", "12.0", "9.5")
    table = link_tables.terminals({"a run": of(2)})
    assert table and table.head[-1] == "MODCOD or waveform", "a column without a value is left out"
    assert {len(line) for line in table.parts["a run"]} == {len(table.head)}
    assert link_tables.terminal_rows([row("run_ok", 1.0)]) == []


@pytest.mark.promise("P20")
def test_p301_each_direction_and_each_fifo_has_a_line() -> None:
    def queue(direction: str) -> list[SummaryRecord]:
        own = {"direction": direction}
        times = [
            row(f"link_queue_{stat}_ms", ms, **own)
            for stat, ms in (("p50", 2.0), ("p95", 30.0), ("p99", 1234.5))
        ]
        return [
            row("link_dropped_packets", 7, **own),
            row("link_queue_max_bytes", 1500, **own),
            *times,
        ]

    def fifo(name: str, value: float | None, **own: str) -> list[SummaryRecord]:
        labels = {"direction": "forward", **own, "fifo": name}
        times = [row("fifo_queue_ms", value, **labels, stat=stat) for stat in ("p50", "p95", "p99")]
        return [
            row("fifo_sent_packets", 5, **labels),
            row("fifo_dropped_packets", 1, **labels),
            *times,
        ]

    wire = [row("link_dropped_packets", 0, direction="terrestrial_up")]
    fifos = [
        *fifo("EF", 1.0, terminal="2"),
        *fifo("BE", None, terminal="2"),
        *fifo("BE", 9.0, terminal="1"),
    ]
    found = link_tables.queue_rows([*wire, *queue("return"), *fifos, *queue("forward")])
    assert found == [
        ("forward", "all", "all", "", "7", "1.5", "2.0", "30.0", "1,234.5"),
        ("forward", "1", "BE", "5", "1", "", "9.0", "9.0", "9.0"),
        ("forward", "2", "EF", "5", "1", "", "1.0", "1.0", "1.0"),
        ("forward", "2", "BE", "5", "1", "", "failed", "failed", "failed"),
        ("return", "all", "all", "", "7", "1.5", "2.0", "30.0", "1,234.5"),
    ]
    table = link_tables.queues({"a run": queue("return")})
    assert table and "Sent (packets)" not in table.head
    assert [len(line) for line in table.parts["a run"]] == [len(table.head)]
    assert link_tables.queue_rows([*wire, row("run_ok", 1.0)]) == []


def test_p330_fifos_of_all_terminals_have_a_line_before_theirs() -> None:
    times = [
        row("link_queue_p50_ms", 2.0, direction=direction) for direction in ("forward", "return")
    ]
    own = {"direction": "forward", "fifo": "EF"}
    fifos = [row("fifo_sent_packets", 5, **own, terminal="1"), row("fifo_sent_packets", 9, **own)]
    alone = row("fifo_sent_packets", 3, direction="return", fifo="EF")
    found = [line[:4] for line in link_tables.queue_rows([*times, *fifos, alone])]
    assert [line for line in found if line[2] == "EF"] == [
        ("forward", "all", "EF", "9"),
        ("forward", "1", "EF", "5"),
        ("return", "1", "EF", "3"),
    ]


def test_an_index_stands_with_the_equal_part_and_the_rates_of_the_clients() -> None:
    own = {"direction": "download", "transport": "TCP"}
    rows = [
        row("fairness_jain_ratio", 0.9876543, **own, terminals="2"),
        row("goodput_share_bps", 9e6, **own, terminals="2"),
        *(row("goodput_bps", bps, **own) for bps in (8e6, 9.5e6)),
        row("goodput_bps", 1e6, direction="upload", transport="TCP"),
    ]
    assert link_tables.fairness_rows(rows) == [
        ("download", "TCP", "2", "0.9877", "9.000", "8.000", "9.500")
    ]
    failed = link_tables.fairness_rows([row("fairness_jain_ratio", None, **own, terminals="2")])
    assert failed == [("download", "TCP", "2", "failed", "", "", "")]


def page_load(
    client: str, load: int, value: float | None, status: str = "ok"
) -> list[SummaryRecord]:
    labels = {
        "entity": client,
        "page": "article",
        "protocol": "h3",
        "pep": "none",
        "load": str(load),
    }
    names = ("response_start_ms", "first_contentful_paint_ms", "page_load_time_ms")
    return [replace(row(name, value, **labels), status=status) for name in names]


def test_each_client_has_the_medians_of_its_page_loads() -> None:
    rows = [
        *page_load("client-10", 0, 1234.6),
        *page_load("client-2", 0, 900.0),
        *page_load("client-2", 1, 1100.0),
        *page_load("client", 0, 800.0),
        *page_load("client", 1, None, "failed"),
        *page_load("client-3", 0, 800.0),
        *page_load("client-3", 1, None, "censored"),
        *page_load("client-3", 2, None, "censored"),
        *page_load("client-4", 0, None, "failed"),
    ]
    of = ("article", "h3", "none")
    assert link_tables.client_rows(rows) == [
        ("client", *of, "1 of 2", *["800"] * 3),
        ("client-2", *of, "2 of 2", *["1,000"] * 3),
        ("client-3", *of, "1 of 3", *["cut off"] * 3),
        ("client-4", *of, "0 of 1", *["failed"] * 3),
        ("client-10", *of, "1 of 1", *["1,235"] * 3),
    ]
    table = link_tables.clients({"a run": rows})
    assert table and len(table.head) == len(link_tables.client_rows(rows)[0])
    assert link_tables.client_rows(page_load("client", 0, 1.0)) == [], (
        "one client is in the other tables"
    )
