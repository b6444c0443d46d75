# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of a link to what satlink is asked."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from satlab import cli
from satlab.cli.base import command, with_options
from satlab.common.errors import ConfigError
from satlab.common.terminals import ProfileTerminal, clients
from satlab.link.option_model import options_of
from satlab.link.options import LinkOptions
from tests import second_terminal


def asked(**options: Any) -> dict[str, Any]:
    """Return the direction that these options become."""
    request = LinkOptions(**options).request()
    assert request.forward == request.return_
    document: dict[str, Any] = json.loads(request.forward.model_dump_json())
    return document


def test_a_choice_becomes_the_command_line_that_makes_it() -> None:
    """What is as by default is left out, but for the profile."""
    assert LinkOptions().arguments() == ["--profile", "geo"]
    options = LinkOptions(profile="leo", loss=0.01, aqm="pie", ecn=True, timeline=Path("a.json"))
    assert options.arguments()[2:] == "--loss 0.01 --aqm pie --ecn --timeline a.json".split()
    result = CliRunner().invoke(cli.app, ["run", "none.json", *options.arguments(), "--dry-run"])
    assert "No such option" not in result.output


def test_labs_have_as_many_terminals_as_lab_yml_names_unless_another_number_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satlab.link.options.LAB_FILE", second_terminal.write(tmp_path / "lab.yml"))
    assert clients(LinkOptions().topology(())) == ("client", "client-2")
    assert len(clients(LinkOptions(terminals=4).topology())) == 4
    assert len(clients(LinkOptions().topology((ProfileTerminal(4), ProfileTerminal(5))))) == 3
    for alone in (
        LinkOptions(timing="opensand"),
        LinkOptions(emulator="opensand"),
        LinkOptions(terminals=1),
    ):
        assert clients(alone.topology(())) == ("client",)


def test_defaults_say_no_more_than_they_did() -> None:
    """A configuration without the new options is the one of old."""
    assert asked() == {"queue": {"bdp": 1.2}, "loss": {"ratio": 0.0, "unit": "packet"}}


def test_queue_limits_and_management() -> None:
    """A limit has its unit; management takes its times and marks."""
    assert asked(queue="60000bytes")["queue"] == {"bytes": 60000}
    assert asked(queue="200 packets", aqm="pie", ecn=True)["queue"] == {
        "packets": 200,
        "aqm": "pie",
        "ecn": True,
    }
    codel = {"bdp": 0.5, "aqm": "codel", "target_ms": 30.0, "interval_ms": 600.0}
    assert (
        asked(queue="0.5bdp", aqm="codel", aqm_target_ms=30.0, aqm_interval_ms=600.0)["queue"]
        == codel
    )
    assert asked(aqm="pie", aqm_target_ms=0.0)["queue"] == {
        "bdp": 1.2,
        "aqm": "pie",
        "target_ms": 0.0,
    }


def test_loss_models_and_jitter(tmp_path: Path) -> None:
    """A loss model alone, or combined with independent losses."""
    chain = {"model": "gilbert-elliott", "p": 0.01, "r": 0.167, "step_ms": 10.0, "unit": "frame"}
    assert asked(loss_model="gilbert-elliott:0.01,0.167,10", loss_unit="frame")["loss"] == chain
    optical = {**chain, "step_ms": 1.0, "min_burst_ms": 10.0, "unit": "packet"}
    assert asked(loss_model="gilbert-elliott:0.01,0.167,1,10")["loss"] == optical
    bursts = {"model": "bursts", "period_ms": 1000.0, "duration_ms": 20.0, "unit": "packet"}
    assert asked(loss=0.1, loss_model="bursts:1000,20")["loss"] == [
        {"ratio": 0.1, "unit": "packet"},
        bursts,
    ]
    trace = tmp_path / "loss.txt"
    assert asked(loss_model=f"trace:{trace}")["loss"] == {
        "model": "trace",
        "file": str(trace),
        "unit": "packet",
    }
    assert asked(jitter_ms=2.0)["jitter"] == {"uniform_ms": 2.0}
    assert LinkOptions(timing="opensand").request().timing == "opensand"


def test_impairments_and_drop_lists_are_the_first_steps_of_the_timeline(tmp_path: Path) -> None:
    """They start with the scenario, after the calibration; the user's timeline follows."""
    file = tmp_path / "t.json"
    file.write_text('[{"at_s": 0, "set": {"direction": "both", "corrupt": 0}}]')
    link = LinkOptions(
        reorder=0.1, duplicate=0.2, corrupt=0.3, loss=0.01, drop_return="2-3,9", timeline=file
    )
    timeline = link.request(timeline_starts="on-request").timeline
    assert timeline is not None and timeline.starts == "on-request"
    assert [(step.at_s, step.set_.model_dump()) for step in timeline.steps] == [
        (
            0,
            {
                "direction": "both",
                "reorder": {"ratio": 0.1, "packets": 2, "ms": 50.0},
                "duplicate": 0.2,
                "corrupt": 0.3,
            },
        ),
        (
            0,
            {
                "direction": "return",
                "loss": (
                    {"unit": "packet", "ratio": 0.01},
                    {"unit": "packet", "model": "list", "numbers": (2, 3, 9)},
                ),
            },
        ),
        (0, {"direction": "both", "corrupt": 0.0}),
    ]
    assert LinkOptions().request().timeline is None
    alone = LinkOptions(reorder=0.1, reorder_ms=20).impairments()
    assert alone["reorder"].model_dump() == {"ratio": 0.1, "ms": 20}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "60kB"}, "--queue 60kB"),
        ({"queue": "0bytes"}, "--queue 0bytes"),
        ({"queue": "1.5packets"}, "--queue 1.5packets"),
        ({"ecn": True}, "needs --aqm"),
        ({"aqm_target_ms": 0.0}, "--aqm-target-ms 0: needs --aqm"),
        ({"aqm": "pie", "aqm_interval_ms": 5.0}, "cannot be set: pie has none"),
        ({"aqm": "dualpi2", "aqm_interval_ms": 5.0}, "cannot be set: dualpi2 has none"),
        ({"aqm": "codel", "aqm_step_ms": 5.0}, "cannot be set: codel has none"),
        ({"loss_model": "gilbert-elliott:0.1"}, "--loss-model gilbert-elliott:0.1"),
        ({"loss_model": "gilbert-elliott:2,1"}, "--loss-model gilbert-elliott:2,1"),
        (
            {"loss_model": "gilbert-elliott:0.1,0.2,1,10,3"},
            "--loss-model gilbert-elliott:0.1,0.2,1,10,3",
        ),
        ({"loss_model": "trace:"}, "--loss-model trace:"),
        ({"loss_model": "rain"}, "--loss-model rain"),
        ({"reorder": 1.5}, "--reorder 1.5"),
        ({"reorder_packets": 3}, "--reorder-packets 3: needs --reorder"),
        ({"reorder": 0.1, "reorder_ms": 0.0}, "--reorder-ms 0"),
        ({"drop_forward": "0"}, "--drop-forward 0: is not a list of packets"),
        ({"drop_return": "7-2"}, "--drop-return 7-2: has a span that falls"),
        ({"drop_return": "1-10000,20000"}, "has too many packets"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    """The message names the option."""
    with pytest.raises(ConfigError, match=said):
        LinkOptions.of(**options)


def test_every_fault_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        LinkOptions.of(seed=-1, loss=1.5, queue="60kB", ecn=True)
    assert [(fault.place, fault.remedy) for fault in caught.value.faults] == [
        ("--seed -1", "0 or more"),
        ("--loss 1.5", "0 to 1"),
        ("--queue 60kB", "write 1.2bdp, 60000bytes or 200packets"),
        ("--ecn", "add --aqm codel, fq-codel, pie or dualpi2"),
    ]


@pytest.mark.parametrize(
    ("instead", "without"),
    [
        ({}, {"aqm_step_ms", "queue"}),
        ({"aqm": "dualpi2", "aqm_step_ms": 4.0}, {"aqm_interval_ms", "queue_bdp"}),
    ],
)
def test_every_option_survives_the_printed_command_line(
    instead: dict[str, Any], without: set[str]
) -> None:
    """An option at another value than its default is read back from `arguments` by the command
    line. No AQM has all options, and of two that set the limit of the queue one is left out.
    """
    others: dict[str, Any] = {
        "profile": "leo",
        "emulator": "opensand",
        "seed": 2,
        "terrestrial_delay_ms": 1.5,
        "queue_bdp": 2.0,
        "opensand_defects": True,
        "opensand_drift_us": 200,
        "loss": 0.1,
        "timing": "opensand",
        "jitter_ms": 3.0,
        "loss_unit": "frame",
        "loss_model": "bursts:5,1",
        "queue": "9packets",
        "aqm": "codel",
        "aqm_target_ms": 8.0,
        "aqm_interval_ms": 9.0,
        "ecn": True,
        "lenient": True,
        "lan_loss": 0.2,
        "timeline": Path("a.json"),
        "probes": "127.0.0.1:5361",
        "terminals": 3,
        "ip": "6",
        "reorder": 0.1,
        "reorder_packets": 4,
        "reorder_ms": 7.0,
        "duplicate": 0.2,
        "corrupt": 0.3,
        "drop_forward": "1,3",
        "drop_return": "2-7",
    }
    chosen = LinkOptions(
        **{name: value for name, value in (others | instead).items() if name not in without}
    )
    usual = {o.name for o in options_of(LinkOptions) if getattr(chosen, o.name) == o.default}
    assert usual == without
    read: list[LinkOptions] = []
    app = typer.Typer()

    @command(group=app)
    @with_options(LinkOptions)
    def only(link: LinkOptions) -> int:
        read.append(link)
        return 0

    result = CliRunner().invoke(app, chosen.arguments())
    assert result.exit_code == 0, result.output
    assert read == [chosen]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--loss", "1%"], "'1%' is not a number: write 0.01."),
        (["--jitter-ms", "5ms"], "'5ms' is not a number: write 5."),
        (["--jitter-ms", "fast"], "'fast' is not a number, in ms."),
        (["--queue", "200packets", "--queue-bdp", "0.5"], "both set the limit of the queue"),
    ],
)
def test_an_option_that_cannot_be_read_says_what_to_write(words: list[str], said: str) -> None:
    result = CliRunner().invoke(cli.app, ["run", "ping", *words, "--dry-run"])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("\u2502", " ").split())
