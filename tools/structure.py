# SPDX-License-Identifier: GPL-3.0-or-later
"""Print the structure of the tree: packages, levels, dependencies, circles, sizes.

`--check` exits with 1 for a fault.

A fault is a circle, an import against the order of the packages, or one of what does not ship.

A room of Python is a package of `src/satlab` (or `collect`) or a module of one; a room of Rust is a
file of a crate.
An arrow is an import that stands in the code, not in a test. A level is the longest chain of
imports below a room.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Graph = Mapping[str, set[str]]
ROOT = Path(__file__).resolve().parents[1]
LAYERS = (
    ("common",),
    ("link", "openbach"),
    ("lab", "report"),
    ("run",),
    ("check", "vm", "service"),
    ("flows",),
    ("papers",),
    ("campaign",),
    ("cli",),
)
"""Packages of `src/satlab`, lowest first; a package uses its own layer and lower ones."""
CRATES = sorted(path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml"))
_USE = re.compile(r"\b(crate|self|super(?:::super)*)::((?:\w+::)*)(\w+|\{[^;]*)")


def is_source(path: Path) -> bool:
    """Return whether a file is code that ships."""
    is_test = (
        path.name.startswith("test_")
        or path.name == "conftest.py"
        or path.is_relative_to(ROOT / "tests")
    )
    return not (is_test or "fixtures" in path.parts)


def python_modules() -> dict[str, set[str]]:
    """Return the imports between the modules of `satlab` and `collect`."""
    files = {}
    for top in (ROOT / "src" / "satlab", ROOT / "collect"):
        for path in filter(is_source, sorted(top.rglob("*.py"))):
            name = ".".join(path.relative_to(top.parent).with_suffix("").parts)
            files[name.removesuffix(".__init__")] = path
    return {
        name: {found for found in _imports(path, files) if found != name}
        for name, path in files.items()
    }


def _imports(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known:
                    yield full
                elif node.module in known:
                    yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def packages(modules: Graph) -> dict[str, set[str]]:
    """Return the dependencies between packages that follow from those between modules."""
    found: dict[str, set[str]] = {}
    for name, uses in modules.items():
        mine = package(name)
        found.setdefault(mine, set()).update({package(used) for used in uses} - {mine})
    return found


def package(module: str) -> str:
    """Return the package of a module: below `satlab` its second word, else its first."""
    words = module.split(".")
    return words[1] if words[0] == "satlab" and len(words) > 1 else words[0]


def rust_files(crate: Path) -> dict[str, set[str]]:
    """Return the uses between the files of a crate, those in folders too.

    What a file uses of the folder that it is in (`super::` in most) is left out: a folder's
    `mod.rs` holds what its files share, and uses them.
    """
    source = crate / "src"
    files = {}
    for path in sorted(source.rglob("*.rs")):
        parts = path.relative_to(source).with_suffix("").parts
        is_test = path.stem == "tests" or path.stem.endswith("_tests")
        if not is_test and parts[0] not in ("lib", "main"):
            files[parts[:-1] if parts[-1] == "mod" else parts] = path
    found = {}
    for name, path in files.items():
        text = path.read_text(encoding="utf-8").split("#[cfg(test)]", maxsplit=1)[0]
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
        uses = {_longest(used, files) for used in _rust_uses(code, name)}
        below = (each for each in files if each[:-1] == name)
        uses |= {each for each in below if re.search(rf"(?<!:)\b{each[-1]}::", code)}
        found["/".join(name)] = {"/".join(used) for used in uses if used != name[: len(used)]}
    return found


def _rust_uses(code: str, name: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths below `crate`, `self` and `super` that a file names, from the crate on."""
    for root, names, group in _USE.findall(code):
        outer = root.split("::")
        start = () if outer[0] == "crate" else name[: len(name) - outer.count("super")]
        path = (*start, *(each for each in names.split("::") if each))
        yield from (
            (*path, *one.split("::")) for one in re.findall(r"(?:^|[{,])\s*([\w:]+)", group)
        )


def _longest(path: tuple[str, ...], files: Mapping[tuple[str, ...], Path]) -> tuple[str, ...]:
    """Return the file that a path leads to: its longest part that is one; () for the crate."""
    return next((path[:n] for n in range(len(path), 0, -1) if path[:n] in files), ())


def circle(graph: Graph) -> list[str]:
    """Return the rooms of one circle, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def levels(graph: Graph) -> int:
    """Return the length of the longest chain of a graph without circles."""
    depth: dict[str, int] = {}
    for room in TopologicalSorter(graph).static_order():
        depth[room] = 1 + max((depth[used] for used in graph.get(room, ())), default=0)
    return max(depth.values(), default=0)


def upward(graph: Graph) -> list[str]:
    """Return imports that break the order of the layers."""
    height = {name: at for at, layer in enumerate(LAYERS) for name in layer}
    pairs = ((name, used) for name, uses in graph.items() for used in sorted(uses))
    found = [
        f"{a} uses {b}" for a, b in pairs if a in height and b in height and height[b] > height[a]
    ]
    return [*found, *(f"collect uses {used}" for used in graph.get("collect", ()))]


def not_shipped() -> list[str]:
    """Return the imports of the product that lead to what is only in a clone."""
    names = ("benches", "tests", "tools")
    known = {
        ".".join((name, path.stem)): path for name in names for path in (ROOT / name).glob("*.py")
    }
    known |= {name: ROOT / name for name in names}
    return [
        f"{path.relative_to(ROOT)} uses {used}"
        for top in ("src", "collect")
        for path in filter(is_source, sorted((ROOT / top).rglob("*.py")))
        for used in _imports(path, known)
    ]


def sizes() -> Iterator[str]:
    """Yield lines of code and of tests, and the number of test functions, of each language; lines
    of schemas.
    """
    yield _size(
        "Python",
        "*.py",
        lambda path, text: (text, "") if is_source(path) else ("", text),
        r"^ *def test_",
    )
    yield _size("Rust", "*.rs", _rust_parts, r"^ *#\[(?:tokio::)?test\b")
    schemas = [
        len(path.read_text(encoding="utf-8").splitlines()) for path in _tracked("schemas/*.json")
    ]
    yield f"schemas: {sum(schemas)} lines, {len(schemas)} files"


def _size(
    language: str, pattern: str, parts: Callable[[Path, str], tuple[str, str]], test: str
) -> str:
    both = [parts(path, path.read_text(encoding="utf-8")) for path in _tracked(pattern)]
    code, tests = (
        sum(len(text.splitlines()) for text in texts) for texts in zip(*both, strict=True)
    )
    count = sum(len(re.findall(test, text, re.MULTILINE)) for _, text in both)
    return f"{language}: {code} lines of code, {tests} of tests, {count} test functions"


def _rust_parts(path: Path, text: str) -> tuple[str, str]:
    """Split a file at its module of tests, which comes last."""
    if (
        {"tests", "examples"} & set(path.parts)
        or path.stem.endswith("_tests")
        or path.stem == "tests"
    ):
        return "", text
    code, marker, tests = text.partition("#[cfg(test)]\nmod tests {")
    return code, marker + tests


def _tracked(pattern: str) -> list[Path]:
    argv = ["git", "-C", str(ROOT), "ls-files", "--", pattern]
    return [
        ROOT / name
        for name in subprocess.run(
            argv, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    ]


def _line(name: str, graph: Graph) -> tuple[str, bool]:
    ring = circle(graph)
    arrows = sum(map(len, graph.values()))
    text = f"{len(graph)} rooms, {arrows} dependencies, "
    return f"{name}: {text}" + (
        f"CIRCLE {' -> '.join(ring)}" if ring else f"{levels(graph)} levels"
    ), not ring


def main() -> int:
    """Print one line a graph, and the violations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 for a fault")
    parser.add_argument("--packages", action="store_true", help="print what each package uses")
    parser.add_argument("--sizes", action="store_true", help="print lines of code and tests")
    options = parser.parse_args()
    if options.sizes:
        print("\n".join(sizes()))
    modules = python_modules()
    graph = packages(modules)
    lines = [
        _line("packages of src/satlab", graph),
        _line("modules of src/satlab and collect", modules),
    ]
    lines += [_line(f"crates/{name}", rust_files(ROOT / "crates" / name)) for name in CRATES]
    wrong = [f"AGAINST THE LAYERS: {each}" for each in [*upward(graph), *not_shipped()]]
    print("\n".join([text for text, _ in lines] + wrong))
    if options.packages:
        print(
            "\n".join(f"{name}: {' '.join(sorted(uses))}" for name, uses in sorted(graph.items()))
        )
    return int(options.check and not (all(fine for _, fine in lines) and not wrong))


if __name__ == "__main__":
    sys.exit(main())
