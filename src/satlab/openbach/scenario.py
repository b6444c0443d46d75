# SPDX-License-Identifier: GPL-3.0-or-later
"""Read OpenBACH scenario JSON and check it whole: `load`, then `bind` sets the values of its
arguments.

It refuses scenarios that OpenBACH 2.7 refuses, that OpenBACH accepts and then hangs or fails on,
and that the embedded lab does not support. Every fault names file, function and path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from satlab.common import did_you_mean
from satlab.common.errors import ConfigError, Fault
from satlab.openbach import hang_checks, upstream_descriptors
from satlab.openbach.argument_values import Values, literal
from satlab.openbach.descriptor import Descriptor
from satlab.openbach.job_arguments import InstanceOf, arrange
from satlab.openbach.json_document import TITLE_RULE, Node, is_title, read_json
from satlab.openbach.model import (
    Action,
    BoundScenario,
    Function,
    OnFail,
    Policy,
    Scenario,
    ScenarioContext,
    StartJob,
    StartScenario,
    Stop,
    Wait,
)
from satlab.openbach.terminal_functions import for_terminals

MAX_FUNCTIONS = 200
MAX_SUB_SCENARIOS = 100
MAX_DEPTH = 10
MAX_RETRIES = 1000
"""Limits of one file, of a scenario with everything below it, of scenarios inside scenarios, of
attempts.
"""

_PLACEHOLDER = re.compile(r"[_a-z][_a-z0-9]*", re.ASCII | re.IGNORECASE)
_KEYS = ("id", "label", "wait", "on_fail")
_NOT_EXECUTED = {
    "if",
    "while",
    "assign_collector",
    "install_agent",
    "uninstall_agent",
    "list_job_instances",
    "set_log_severity_job",
    "set_statistics_policy_job",
}
_NOT_EMBEDDED = {"push_file", "pull_file", "reboot", "status_job_instance", "restart_job_instance"}


def load(
    path: Path,
    jobs: Mapping[str, Descriptor],
    entities: Iterable[str],
    *,
    endless: bool = False,
    warnings: list[Fault] | None = None,
    terminals: int = 1,
) -> Scenario:
    """Read and check a scenario and its sub-scenarios (files of the same folder, `<name>.json`).

    `endless`: accept a job that nothing stops; then the caller stops it. `warnings`: where to note
    what OpenBACH accepts; None: it is a fault. `terminals`: of the lab; what uses `$terminal` is
    repeated for each.

    Raises ConfigError with every fault found.
    """
    faults: list[Fault] = []
    context = ScenarioContext(jobs, frozenset(entities), path.parent, endless, warnings, terminals)
    node = read_json(path, faults, warnings)
    if node is not None:
        node = replace(node, value=for_terminals(node.value, terminals))
        scenario = _header(node, path, context)
        _Reader(context, faults).read(
            node, scenario, Values(scenario.constants, frozenset(scenario.arguments))
        )
        _check_use(node, scenario)
    if node is None or faults:
        raise ConfigError(f"the scenario {path} is not valid", tuple(dict.fromkeys(faults)))
    return scenario


def validate_paths(
    paths: Iterable[Path],
    jobs: Mapping[str, Descriptor],
    entities: Iterable[str],
    warnings: list[Fault] | None = None,
) -> list[Fault]:
    """Return every fault of the scenario files, and of every `*.json` in the folders, that `paths`
    name.
    """
    names = frozenset(entities)
    faults: list[Fault] = []
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            faults.append(Fault(str(path), "holds no scenario", "scenarios are *.json files"))
        for file in files:
            try:
                load(file, jobs, names, warnings=warnings)
            except ConfigError as error:
                faults.extend(error.faults)
    return list(dict.fromkeys(faults))


def bind(scenario: Scenario, values: Mapping[str, str]) -> BoundScenario:
    """Set the values of arguments, and new ones of constants (which makes another version of the
    scenario).

    Raises ConfigError with every fault: unknown names, arguments without a value, values of the
    wrong type.
    """
    faults: list[Fault] = []
    known = {**scenario.constants, **values}
    names = [*scenario.arguments, *scenario.constants]
    faults.extend(
        Fault(f"{name}={value}", "the scenario has no such name", did_you_mean.remedy(name, names))
        for name, value in values.items()
        if name not in names
    )
    for name in [name for name in scenario.arguments if name not in values]:
        remedy = f"set {name}=VALUE ({scenario.arguments[name]})"
        faults.append(
            Fault(f"{scenario.file}: arguments.{name}", "the argument has no value", remedy)
        )
    node = Node(scenario.document, str(scenario.file), faults, warnings=scenario.context.warnings)
    missing = frozenset(scenario.arguments.keys() - values.keys())
    bound = _Reader(scenario.context, faults).read(node, scenario, Values(known, missing))
    if faults:
        raise ConfigError(
            f"the scenario {scenario.name} cannot run with these values",
            tuple(dict.fromkeys(_as_given(fault, values) for fault in faults)),
        )
    return bound


def _as_given(fault: Fault, values: Mapping[str, str]) -> Fault:
    """Return the fault of a value with the value as its place: users do not know the functions."""
    for name, value in values.items():
        given = f"{name}={value[:60]}"
        said = [given] if list(values.values()).count(value) > 1 else [given, repr(value[:60])]
        for words in said:
            if fault.reason.startswith(f"{words} "):
                return Fault(given, fault.reason.removeprefix(f"{words} "), fault.remedy)
    return fault


def _header(node: Node, path: Path, context: ScenarioContext) -> Scenario:
    """Read everything of a scenario but its functions."""
    entries = node.only("name", "description", "arguments", "constants", "openbach_functions")
    name = entries["name"].text() if "name" in entries else ""
    if not is_title(name):
        node.fault("the scenario needs a name of its own", TITLE_RULE, "name")
    if "openbach_functions" not in entries:
        node.fault("the list of functions is missing", "", "openbach_functions")
    arguments, constants = (_texts(entries.get(key)) for key in ("arguments", "constants"))
    for both in sorted(arguments.keys() & constants.keys()):
        entries["constants"].fault("is an argument and a constant", "rename one", both)
    description = entries["description"].text() if "description" in entries else ""
    return Scenario(name, description, arguments, constants, path, node.value, context)


def _texts(node: Node | None) -> dict[str, str]:
    entries = node.mapping() if node is not None else {}
    for name in [name for name in entries if not _PLACEHOLDER.fullmatch(name)]:
        entries[name].fault(
            "is not a name that a placeholder can have", "use letters, digits and '_'"
        )
    return {name: entry.text() for name, entry in entries.items()}


def _functions(node: Node) -> list[Node]:
    """Return the function nodes, each with its id in the place."""
    entries = node.value.get("openbach_functions", []) if isinstance(node.value, dict) else []
    found = []
    for position, entry in enumerate(node.child("openbach_functions", entries).array()):
        number = entry.value.get("id") if isinstance(entry.value, dict) else None
        name = f"function {number}" if type(number) is int else f"openbach_functions.{position}"
        found.append(Node(entry.value, f"{node.head}: {name}", node.faults, warnings=node.warnings))
    return found


def _check_use(node: Node, scenario: Scenario) -> None:
    """Note names that nothing uses, and placeholders that nothing defines."""
    known = Values({}, frozenset((*scenario.arguments, *scenario.constants)))
    used = set()
    for function in _functions(node):
        entries = function.mapping() if isinstance(function.value, dict) else {}
        for key in [key for key in entries if key not in ("id", "label")]:
            used |= known.check(entries[key])
    for section, names in (("arguments", scenario.arguments), ("constants", scenario.constants)):
        for name in [name for name in names if name not in used]:
            node.fault(
                "nothing uses this name",
                f"remove it, or write ${name} where it belongs",
                section,
                name,
            )


@dataclass
class _Reader:
    """Reads functions with given values; shared by a scenario and everything below it."""

    context: ScenarioContext
    faults: list[Fault]
    stack: tuple[str, ...] = ()
    started: list[str] = field(default_factory=list)

    def read(self, node: Node, scenario: Scenario, values: Values) -> BoundScenario:
        """Read the functions of a scenario; what is faulty is left out."""
        self.stack = (*self.stack, scenario.file.stem)
        functions: dict[int, Function] = {}
        nodes = _functions(node)
        if len(nodes) > MAX_FUNCTIONS * self.context.terminals:
            node.fault(f"holds more than {MAX_FUNCTIONS} functions", "", "openbach_functions")
            nodes = []
        places: dict[int, Node] = {}
        for entry in nodes:
            self._function(entry, values, functions, places)
        for function in functions.values():
            _check_ids(function, functions, places)
        hang_checks.check_waits(functions, places)
        # A missing function may have been the one that stops a job.
        endless = hang_checks.endless(functions) if len(functions) == len(nodes) else {}
        if (
            len(self.stack) == 1 and not self.context.endless
        ):  # the parent of a sub-scenario may stop it, and is checked for that
            for number, reason in endless.items():
                places[number].fault(reason, "stop it with a function that waits for what needs it")
        self.stack = self.stack[:-1]
        return BoundScenario(scenario.name, values.known, tuple(functions.values()), bool(endless))

    def _function(
        self, node: Node, values: Values, functions: dict[int, Function], places: dict[int, Node]
    ) -> None:
        entries = node.mapping()
        number = entries["id"].integer() if "id" in entries else None
        if "id" not in entries:
            node.fault("has no id", "assign each function an integer of its own", "id")
        elif number in places:
            node.fault("another function has the same id", "ids are unique in a scenario", "id")
        wait = self._wait(entries["wait"], values) if "wait" in entries else Wait()
        on_fail = self._on_fail(entries["on_fail"], values) if "on_fail" in entries else OnFail()
        label = entries["label"].text() if "label" in entries else str(number)
        action = self._action(node, entries, values)
        if number is not None and number not in places:
            places[number] = node
            if action is not None:
                functions[number] = Function(number, label, wait, on_fail, action)

    def _wait(self, node: Node, values: Values) -> Wait:
        keys = ("launched_ids", "finished_ids", "ended_ids", "running_ids")
        entries = node.only("time", *keys)
        time = values.number(entries["time"]) if "time" in entries else None
        ids = (_ids(entries[key]) if key in entries else () for key in keys)
        return Wait(time or 0.0, *ids)

    def _on_fail(self, node: Node, values: Values) -> OnFail:
        entries = node.only("policy", "retry", "delay")
        name = entries["policy"].text().lower() if "policy" in entries else "fail"
        if name not in [policy.value for policy in Policy]:
            entries["policy"].fault(f"unknown policy {name!r}", "Fail, Ignore or Retry")
            return OnFail()
        retry = entries["retry"].integer() if "retry" in entries else None
        if retry is not None and not 1 <= retry <= MAX_RETRIES:
            entries["retry"].fault(f"is not within 1 to {MAX_RETRIES}")
        if name == Policy.RETRY.value and "retry" not in entries:
            node.fault("the number of retries is missing", "", "retry")
        delay = values.number(entries["delay"]) if "delay" in entries else None
        return OnFail(Policy(name), retry or 0, OnFail.delay if delay is None else delay)

    def _action(self, node: Node, entries: Mapping[str, Node], values: Values) -> Action | None:
        readers: dict[str, Callable[[Node, Values], Action | None]] = {
            "start_job_instance": self._start_job,
            "stop_job_instance": lambda entry, _: _stop(entry, "openbach_function_id"),
            "stop_job_instances": lambda entry, _: _stop(entry, "openbach_function_ids"),
            "start_scenario_instance": self._start_scenario,
            "stop_scenario_instance": lambda entry, _: _stop(entry, "openbach_function_id"),
        }
        names = [name for name in entries if name not in _KEYS]
        if not names:
            node.fault("has nothing to do", f"one of {', '.join(readers)}")
        if len(names) > 1:
            node.fault(
                f"has more than one thing to do: {', '.join(names)}",
                "make each a function of its own",
            )
        for name in names:
            if name in _NOT_EXECUTED:
                entries[name].fault(
                    "OpenBACH accepts this and cannot execute it", "use sub-scenarios and on_fail"
                )
            elif name in _NOT_EMBEDDED:
                entries[name].fault(
                    "the embedded lab does not execute this", f"it executes {', '.join(readers)}"
                )
            elif name not in readers:
                entries[name].fault("unknown function", f"known: {', '.join(readers)}")
        actions = [readers[name](entries[name], values) for name in names if name in readers]
        return actions[0] if len(actions) == 1 else None

    def _start_job(self, node: Node, values: Values) -> StartJob | None:
        entries = node.mapping()
        entity = self._entity(node, entries)
        timing = {key: entries[key] for key in ("offset", "interval") if key in entries}
        timing = {
            key: entry for key, entry in timing.items() if entry.value is not None
        }  # null is "not given"
        offset = values.number(timing["offset"]) if "offset" in timing else None
        interval = values.whole(timing["interval"]) if "interval" in timing else None
        jobs = [name for name in entries if name not in ("entity_name", "offset", "interval")]
        if not jobs:
            node.fault("names no job to start", f"known jobs: {', '.join(self.context.jobs)}")
        if len(jobs) > 1:
            node.fault(
                f"names more than one job: {', '.join(jobs)}", "start each in a function of its own"
            )
        for name in [name for name in jobs if name not in self.context.jobs]:
            entries[name].fault(
                "there is no such job", f"known jobs: {', '.join(self.context.jobs)}"
            )
        known = [name for name in jobs if name in self.context.jobs]
        for name in known:
            if self.context.warnings is not None and name in upstream_descriptors.ELSEWHERE:
                entries[name].doubt(*upstream_descriptors.ELSEWHERE[name])
        words = [arrange(self.context.jobs[name], entries[name], values) for name in known]
        if len(jobs) != 1 or not known:
            return None
        return StartJob(entity, self.context.jobs[known[0]], words[0], offset or 0.0, interval)

    def _entity(self, node: Node, entries: Mapping[str, Node]) -> str:
        if "entity_name" not in entries:
            node.fault(
                "the entity is missing",
                f"one of {', '.join(sorted(self.context.entities))}",
                "entity_name",
            )
            return ""
        entity = literal(entries["entity_name"])
        if "$" not in entity and entity not in self.context.entities:
            known = ", ".join(sorted(self.context.entities))
            entries["entity_name"].doubt(f"there is no entity {entity!r}", f"one of {known}")
        return entity

    def _start_scenario(self, node: Node, values: Values) -> StartScenario | None:
        entries = node.only("scenario_name", "arguments")
        for key in [key for key in ("scenario_name", "arguments") if key not in entries]:
            node.fault(
                "is missing",
                "OpenBACH needs it even when it is empty: {}" if key == "arguments" else "",
                key,
            )
        if "scenario_name" not in entries:
            return None
        name = literal(entries["scenario_name"])
        given = entries["arguments"].mapping() if "arguments" in entries else {}
        if not self._may_start(name, entries["scenario_name"]):
            return None
        path = self.context.folder / f"{name}.json"
        below = read_json(path, self.faults, self.context.warnings)
        if below is None:
            entries["scenario_name"].fault(
                f"the sub-scenario {name} cannot be read", f"it belongs in {path}"
            )
            return None
        scenario = _header(below, path, self.context)
        if scenario.name != name:
            below.fault(
                f"is called {scenario.name!r}, not {name!r}",
                "name and file name must agree",
                "name",
            )
        for extra in [key for key in given if key not in scenario.arguments]:
            given[extra].fault(
                f"the scenario {name} has no such argument",
                f"known: {', '.join(scenario.arguments)}",
            )
        for missing in [key for key in scenario.arguments if key not in given]:
            node.fault("the sub-scenario's argument has no value", "", "arguments", missing)
        filled = {key: values.fill(entry) for key, entry in given.items()}
        known = {key: str(value) for key, value in filled.items() if value is not None}
        _check_use(below, scenario)
        inside = Values(
            {**scenario.constants, **known}, frozenset(scenario.arguments.keys() - known.keys())
        )
        return StartScenario(self.read(below, scenario, inside))

    def _may_start(self, name: str, node: Node) -> bool:
        """Refuse names that are not a file, recursion, and more sub-scenarios than any real
        scenario has.
        """
        if not is_title(name):
            if "$" not in name:
                node.fault(f"{name[:60]!r} is not the name of a scenario", TITLE_RULE)
            return False
        if name in self.stack:
            node.fault(
                f"the scenario starts itself: {' -> '.join((*self.stack, name))}",
                "OpenBACH would never end",
            )
            return False
        if len(self.stack) > MAX_DEPTH:
            node.fault(f"scenarios are nested more than {MAX_DEPTH} deep")
            return False
        self.started.append(name)
        if len(self.started) > MAX_SUB_SCENARIOS:
            if len(self.started) == MAX_SUB_SCENARIOS + 1:
                node.fault(f"more than {MAX_SUB_SCENARIOS} sub-scenarios are started in all")
            return False
        return True


def _check_ids(
    function: Function, functions: hang_checks.Functions, places: Mapping[int, Node]
) -> None:
    """Note references to functions that are missing or of the wrong kind."""
    wait, node = function.wait, places[function.id]
    lists = {
        "launched": wait.launched,
        "finished": wait.finished,
        "ended": wait.ended,
        "running": wait.running,
    }
    for name, numbers in lists.items():
        for number in [number for number in numbers if number not in places]:
            node.fault(f"there is no function {number}", "", "wait", f"{name}_ids")
    if isinstance(function.action, Stop):
        kind = StartScenario if "stop_scenario_instance" in node.value else StartJob
        what = "scenario" if kind is StartScenario else "job"
        for number in function.action.ids:
            if number not in places:
                node.fault(f"there is no function {number} to stop")
            elif number in functions and not isinstance(functions[number].action, kind):
                node.fault(f"function {number} starts no {what} that could be stopped")
    if isinstance(function.action, StartJob):
        for word in function.action.words:
            if isinstance(word, InstanceOf) and not _leads(functions, word):
                path = " ".join(map(str, word.path))
                node.fault(f"the path {path!r} leads to no {word.kind} instance")


def _leads(functions: hang_checks.Functions, reference: InstanceOf) -> bool:
    """Return whether a path of function ids ends at a job (or scenario) that gets started."""
    *above, last = reference.path
    here: Mapping[int, Function] = functions
    for number in above:
        action = here[number].action if number in here else None
        if not isinstance(action, StartScenario):
            return False
        here = {function.id: function for function in action.scenario.functions}
    kind = StartJob if reference.kind == "job" else StartScenario
    return last in here and isinstance(here[last].action, kind)


def _ids(node: Node) -> tuple[int, ...]:
    numbers = [entry.integer() for entry in node.array()]
    return tuple(number for number in numbers if number is not None)


def _stop(node: Node, key: str) -> Stop | None:
    entries = node.only(key)
    if key not in entries:
        node.fault("is missing", "the id of the function that started it", key)
        return None
    if key.endswith("s"):
        return Stop(_ids(entries[key]))
    number = entries[key].integer()
    return None if number is None else Stop((number,))
