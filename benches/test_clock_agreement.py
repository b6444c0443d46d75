# SPDX-License-Identifier: GPL-3.0-or-later
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benches import clock_agreement
from benches.clock_agreement import Compared
from satlab.check import case_link, suite
from satlab.check.case_link import CaseLink
from satlab.check.endpoint import command_pair, lockstep
from satlab.check.endpoint.pair import EndpointPair
from satlab.check.samples import Sample
from satlab.check.suite import Case, Suite
from satlab.cli import app
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus

LOG = ProgressLog(quiet=True)


class Clock:
    """A backend whose times are `factor` times those of the rate; it never reaches 100 MB.

    Its first `off` samples are out of calibration, and take ten times as long.
    """

    stack = "planted"

    def __init__(self, factor: float, off: int = 0, pair: EndpointPair | None = None) -> None:
        self.factor, self.off, self.pair = factor, off, pair

    def lacking(self, *of: Any) -> str:
        return self.pair.unsupported_reason(of[-1]) if self.pair else ""

    def sample(self, plan: Suite, case: Case, link: CaseLink, seed: int, raw: Path) -> Sample:
        del link, raw
        is_off = seed <= self.off
        factor = self.factor * (10 if is_off else 1)
        times = [8 * mark / case.forward_mbps * factor + seed / 1e6 for mark in plan.marks_mb]
        return Sample(
            case.id,
            seed,
            "ok",
            "",
            tuple(None if mark > 50 else t for mark, t in zip(plan.marks_mb, times, strict=True)),
            calibration="late_packet_ratio" if is_off else "",
        )


def compare(
    monkeypatch: pytest.MonkeyPatch,
    factor: float,
    cases: Sequence[str] = (),
    up_to_mb: float = 10,
    off: int = 0,
    name: str = "etosat",
) -> dict[str, Any]:
    monkeypatch.setattr(clock_agreement, "VirtualClock", lambda *_, **__: Clock(1.0))
    monkeypatch.setattr(clock_agreement, "RealClock", lambda pair: Clock(factor, off, pair))
    monkeypatch.setattr(case_link, "build", lambda *_: None)
    return clock_agreement.measure(name, cases, up_to_mb, 3, Compared(), ProgressLog(quiet=True))


def test_clocks_agree_within_three_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    within, beyond = compare(monkeypatch, 1.029), compare(monkeypatch, 0.969)
    assert (
        within["agree"]
        and not beyond["agree"]
        and "OFF" in "\n".join(clock_agreement.lines(beyond))
    )
    assert within["cases"][0]["marks"][0]["deviation"] == pytest.approx(0.029, abs=1e-3)


def test_only_supported_cases_without_losses_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    result = compare(monkeypatch, 1.0)
    assert [case["id"] for case in result["cases"]] == [
        "small-download",
        "small-upload",
        "medium",
        "medium-congested",
        "medium-variable",
        "large",
    ]
    assert [mark["mark_mb"] for mark in result["cases"][0]["marks"]] == [2, 10]


def test_the_open_cells_are_compared_with_a_second_transfer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "mine.yml"
    own.write_text(suite.file_of("second").read_text().replace("name: second", "name: mine"))
    for name in ("second", str(own)):
        result = compare(monkeypatch, 1.0, name=name)
        assert [case["id"] for case in result["cases"]] == [
            "medium-second",
            "large-second",
            "medium-variable",
        ]


def test_a_mark_that_was_never_reached_is_not_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    result = compare(monkeypatch, 1.0, cases=["large"], up_to_mb=100)
    [case] = result["cases"]
    assert [mark["agrees"] for mark in case["marks"]] == [True, True, False] and not result["agree"]
    assert case["marks"][2]["real_s"] is None and "never" in "\n".join(
        clock_agreement.lines(result)
    )


def test_samples_out_of_calibration_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    result = compare(monkeypatch, 1.0, cases=["small-download"], off=1)
    assert result["agree"] and result["is_measurable"]
    assert "1 of 3 real samples out of calibration, not counted" in "\n".join(
        clock_agreement.lines(result)
    )
    worse = compare(monkeypatch, 1.0, cases=["small-download"], off=2)
    assert (
        worse["agree"]
        and not worse["is_measurable"]
        and worse["cases"][0]["marks"][0]["deviation"] is None
    )
    assert "not measurable" in "\n".join(clock_agreement.lines(worse))


def test_programs_of_a_stack_are_compared_on_both_clocks() -> None:
    """What either side cannot run is left out; if nothing is left, each case says why."""
    programs, pair = lockstep.parse("true", "true"), command_pair.parse("cat {out}", "cat")
    virtual, real = Compared(programs=programs, pair=pair).clocks()
    assert (virtual.stack, real.stack) == ("true", "cat to cat")
    etosat = suite.load(suite.file_of("etosat"))
    reasons = {
        case.id: clock_agreement._lacking(etosat, case, virtual, real) for case in etosat.cases
    }
    assert [name for name, reason in reasons.items() if not reason] == [
        "small-download",
        "medium",
        "medium-congested",
        "medium-variable",
        "large",
    ]
    assert "uploads" in reasons["small-upload"] and "{state}" in reasons["medium-second"]
    resume = suite.load(suite.file_of("resume"))
    assert "options" in clock_agreement._lacking(resume, resume.case("same-cr"), virtual, real)
    with pytest.raises(ConfigError, match="nothing") as caught:
        clock_agreement.measure(
            "etosat",
            ["small-upload,large-lossy"],
            2,
            1,
            Compared(programs=programs, pair=pair),
            LOG,
        )
    assert [fault.place for fault in caught.value.faults] == ["small-upload", "large-lossy"]
    with pytest.raises(ConfigError, match="nothing"):
        clock_agreement.measure("interop", (), 2, 1, Compared(programs=programs, pair=pair), LOG)


@pytest.mark.parametrize(
    "options",
    [
        ["--virtual-client", "cat", "--virtual-server", "cat"],
        ["--client-cmd", "cat", "--server-cmd", "cat"],
        [
            "--stack",
            "ngtcp2",
            "--client",
            "a=1",
            "--virtual-client",
            "cat",
            "--virtual-server",
            "cat",
        ],
        ["--client-env", "A=1"],
        ["--virtual-client", "cat", "--stack", "ngtcp2"],
    ],
)
def test_programs_for_one_clock_alone_are_refused(options: list[str]) -> None:
    assert CliRunner().invoke(app, ["bench", "agree", *options]).exit_code == ExitStatus.USAGE
