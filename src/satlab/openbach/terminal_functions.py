# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions of a scenario that each terminal of a lab has: those that use the placeholder
`$terminal`.

As written, a scenario is that of one terminal, and runs on OpenBACH. In a lab with several, a
function that uses `$terminal` (a constant, "01") is repeated for each further one: there
`$terminal` is its number in two digits, and the entities `client` and `st` are its own (`client-2`,
`st-2`). A repeated function waits for, and stops, those of its own terminal; any other function
those of all. Sub-scenarios are not repeated.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

PLACEHOLDER = "terminal"
_USE = re.compile(r"(?<!\$)\$(?:terminal(?![A-Za-z0-9_])|\{terminal\})")
_OWN = ("client", "st")
_WAITS = ("launched_ids", "finished_ids", "ended_ids", "running_ids")


def for_terminals(document: Any, count: int) -> Any:
    """Return a scenario's document with the functions of each of `count` terminals. Malformed parts
    stay as they are.
    """
    functions = document.get("openbach_functions") if isinstance(document, dict) else None
    if count == 1 or not isinstance(functions, list):
        return document
    ids = [function["id"] for function in functions if _has_id(function)]
    repeated = {function["id"] for function in functions if _has_id(function) and _uses(function)}
    step = max(ids, default=0) + 1
    numbers = range(1, count + 1)

    def of(number: int) -> Callable[[int], list[int]]:
        return lambda one: [one + step * (number - 1)] if one in repeated else [one]

    def of_all(one: int) -> list[int]:
        return [one + step * (number - 1) for number in numbers] if one in repeated else [one]

    made: list[Any] = []
    for function in functions:
        if not (_has_id(function) and function["id"] in repeated):
            made.append(_referring(function, of_all) if isinstance(function, dict) else function)
            continue
        for number in numbers:
            copy = function if number == 1 else _copy(function, number, step)
            made.append(_referring(copy, of(number)))
    return {**document, "openbach_functions": made}


def uses_terminals(document: Any) -> bool:
    """Return whether a scenario has a function that each terminal has."""
    functions = document.get("openbach_functions") if isinstance(document, dict) else None
    return isinstance(functions, list) and any(
        _has_id(function) and _uses(function) for function in functions
    )


def written_out(document: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return an accepted scenario as that of `count` terminals, without the placeholder: no lab
    repeats it again.
    """
    made: dict[str, Any] = for_terminals(dict(document), count)
    functions = [_filled(each, "01") for each in made["openbach_functions"]]
    constants = {
        name: value for name, value in made.get("constants", {}).items() if name != PLACEHOLDER
    }
    return {**made, "constants": constants, "openbach_functions": functions}


def _has_id(function: Any) -> bool:
    return (
        isinstance(function, dict)
        and isinstance(function.get("id"), int)
        and not isinstance(function["id"], bool)
    )


def _uses(value: Any) -> bool:
    if isinstance(value, str):
        return _USE.search(value) is not None
    if isinstance(value, dict):
        return any(map(_uses, value.values()))
    return isinstance(value, list) and any(map(_uses, value))


def _copy(function: Mapping[str, Any], number: int, step: int) -> dict[str, Any]:
    """Return the function of a further terminal, which still refers to those of the first."""
    copy: dict[str, Any] = _filled(dict(function), f"{number:02}")
    copy["id"] = function["id"] + step * (number - 1)
    copy["label"] = f"{function.get('label', function['id'])}, terminal {number}"
    job = copy.get("start_job_instance")
    if isinstance(job, dict) and job.get("entity_name") in _OWN:
        copy["start_job_instance"] = {**job, "entity_name": f"{job['entity_name']}-{number}"}
    return copy


def _filled(value: Any, number: str) -> Any:
    if isinstance(value, str):
        return _USE.sub(number, value)
    if isinstance(value, dict):
        return {key: _filled(entry, number) for key, entry in value.items()}
    return [_filled(entry, number) for entry in value] if isinstance(value, list) else value


def _referring(function: Mapping[str, Any], to: Callable[[int], list[int]]) -> dict[str, Any]:
    """Replace the function ids of a function by those of `to`. A stop of one may become a stop of
    several.
    """
    changed = dict(function)
    entry = changed.get("stop_job_instance")
    if isinstance(entry, dict) and "stop_job_instances" not in changed:
        stopped = [entry.get("openbach_function_id")]
        if _each(stopped, to) != stopped:
            del changed["stop_job_instance"]
            changed["stop_job_instances"] = {"openbach_function_ids": stopped}
    for key, names in (("wait", _WAITS), ("stop_job_instances", ("openbach_function_ids",))):
        entry = changed.get(key)
        if isinstance(entry, dict):
            lists = {name: entry[name] for name in names if isinstance(entry.get(name), list)}
            changed[key] = {**entry, **{name: _each(ids, to) for name, ids in lists.items()}}
    return changed


def _each(ids: list[Any], to: Callable[[int], list[int]]) -> list[Any]:
    return [
        number
        for one in ids
        for number in (to(one) if isinstance(one, int) and not isinstance(one, bool) else [one])
    ]
