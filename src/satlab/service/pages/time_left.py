# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a run will still take: as long as equal runs took, else its argument `duration`."""

from collections import OrderedDict
from collections.abc import Sequence
from statistics import median

from satlab.openbach.engine import ScenarioStatus
from satlab.service.api.queue import Instance, Queue
from satlab.service.pages.rendering import span

MOST_EARLIER = 100
"""Earlier runs of the scenario in which equal ones are looked for."""
MOST_KNOWN = 64
"""Instances whose equal runs are kept."""


class EarlierRuns:
    """How long equal runs took.

    Each instance is looked up once: no other one ends while it runs.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._known: OrderedDict[int, tuple[float, ...]] = OrderedDict()

    def durations(self, instance: Instance) -> tuple[float, ...]:
        """Return the durations of the scenario in equal runs (scenario, arguments, constants,
        link), s.
        """
        if instance.id not in self._known:
            took = (_duration(other) for other in _equal(self._queue, instance))
            self._known[instance.id] = tuple(seconds for seconds in took if seconds is not None)
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return self._known[instance.id]


def time_left(earlier: EarlierRuns, instance: Instance, now: float) -> str:
    """Return how long the scenario will still take, in words; '' if nothing is known of that.

    Equal runs took as long; without one, the argument `duration` counts.
    """
    if instance.tree is None or instance.tree["start_unix_s"] is None or instance.ended:
        return ""
    elapsed = now - instance.tree["start_unix_s"]
    durations = earlier.durations(instance)
    if durations:
        runs = "an equal run" if len(durations) == 1 else f"{len(durations)} equal runs"
        left = median(durations) - elapsed
        return f"about {span(left)} left, as in {runs}" if left > 0 else f"longer than {runs} took"
    try:
        requested = float(instance.request.arguments["duration"])
    except (KeyError, ValueError):
        return ""
    return (
        f"at least {span(requested - elapsed)} left of the requested {requested:g} s"
        if requested > elapsed
        else ""
    )


def _equal(queue: Queue, instance: Instance) -> Sequence[Instance]:
    found = queue.instances(instance.project, instance.scenario, limit=MOST_EARLIER)
    own = instance.request
    return [
        other
        for other in found
        if other.status is ScenarioStatus.FINISHED_OK
        and (other.request.arguments, other.request.documents) == (own.arguments, own.documents)
        and other.request.link.model_copy(update={"seed": own.link.seed}) == own.link
    ]


def _duration(instance: Instance) -> float | None:
    tree = instance.tree
    if tree is None or tree["start_unix_s"] is None or tree["stop_unix_s"] is None:
        return None
    return tree["stop_unix_s"] - tree["start_unix_s"]
