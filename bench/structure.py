"""How the code is laid out: `python -m bench.structure [CHECKOUT]`, of any version of it.

Read off the sources, which are parsed and never run:

* *package cycles*: packages that import each other, directly or by way of others. A package is a
  folder of modules; imports inside functions, and those for types only, count as all others.
* *module circles*: modules that import each other, counted alike.
* *class names used twice*: names that stand for two or more classes, private ones included.
* *docstrings that begin with "Of"*: those of modules, classes and functions, and the strings after
  what they document.
* *reading lists*: the files of one layer that its entry points import, directly or by way of
  others. "How is a step timed" begins where ``costmodel`` defines ``Objective``, ``simulate``, and
  a function ``step_time``; "how does ``auto`` search" at the sharders that it runs, in
  ``sharders``.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOPS = ("costmodel", "sharders", "planner", "bench")
STEP_ENTRIES = {"Objective", "simulate", "step_time"}
"""What ``costmodel`` defines to time the steps of many plans, and of one."""


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """The folder of the file."""
        is_package = self.path.name == "__init__.py"
        return self.name if is_package else self.name.rpartition(".")[0]

    @property
    def lines(self) -> int:
        """Lines of the file."""
        return len(self.path.read_text(encoding="utf-8").splitlines())


@dataclass(frozen=True)
class Checkout:
    """The sources of one version."""

    root: Path

    @cached_property
    def modules(self) -> Mapping[str, Module]:
        """All modules, by name."""
        paths = (path for top in TOPS for path in sorted((self.root / top).rglob("*.py")))
        made = (Module(_name(path, self.root), path, _parsed(path)) for path in paths)
        return {module.name: module for module in made}

    @cached_property
    def imports(self) -> Mapping[str, frozenset[str]]:
        """The modules of the checkout that each module imports."""
        return {name: frozenset(self._imported(name)) for name in self.modules}

    def _imported(self, name: str) -> Iterator[str]:
        for node in ast.walk(self.modules[name].tree):
            found: Iterable[str] = ()
            if isinstance(node, ast.Import):
                found = (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                found = (each if each in self.modules else node.module for each in inside)
            yield from (each for each in found if each in self.modules and each != name)

    def reached(self, entries: Iterable[str], top: str) -> list[Module]:
        """Return the modules of a layer that some of its modules import, and these."""
        reached: set[str] = set()
        left = list(entries)
        while left:
            name = left.pop()
            if name not in reached and name.partition(".")[0] == top:
                reached.add(name)
                left += self.imports[name]
        return [self.modules[name] for name in sorted(reached)]


def package_cycles(checkout: Checkout) -> list[list[str]]:
    """Return the sets of packages that import each other."""
    edges: dict[str, set[str]] = defaultdict(set)
    for name, imported in checkout.imports.items():
        package = checkout.modules[name].package
        edges[package] |= {checkout.modules[each].package for each in imported} - {package}
    return _circles(edges)


def module_circles(checkout: Checkout) -> list[list[str]]:
    """Return the sets of modules that import each other."""
    return _circles(checkout.imports)


def shared_class_names(checkout: Checkout) -> dict[str, list[str]]:
    """Return the names of several classes, with the modules of these."""
    owners: dict[str, list[str]] = defaultdict(list)
    for module in checkout.modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                owners[node.name].append(module.name)
    return {name: found for name, found in sorted(owners.items()) if len(found) > 1}


def fragments(checkout: Checkout) -> list[str]:
    """Return where docstrings begin with "Of", as ``module:line``."""
    return [
        f"{module.name}:{node.lineno}"
        for module in checkout.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and str(node.value.value).split(maxsplit=1)[:1] == ["Of"]
    ]


def step_modules(checkout: Checkout) -> list[Module]:
    """Return what there is to read about how a step is timed."""
    kinds = (ast.ClassDef, ast.FunctionDef)
    entries = [
        module.name
        for module in checkout.modules.values()
        if module.name.startswith("costmodel.")
        and any(isinstance(node, kinds) and node.name in STEP_ENTRIES for node in module.tree.body)
    ]
    return checkout.reached(entries, "costmodel")


def search_modules(checkout: Checkout) -> list[Module]:
    """Return what there is to read about how ``auto`` searches."""
    assigned = {
        target.id: node.value
        for node in checkout.modules["sharders"].tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    sharders: Mapping[object, str] = ast.literal_eval(assigned["SHARDERS"])
    texts = (n.value for n in ast.walk(assigned["PORTFOLIO"]) if isinstance(n, ast.Constant))
    entries = [sharders[text].partition(":")[0] for text in texts if text in sharders]
    return checkout.reached(["sharders", *entries], "sharders")


def report(checkout: Checkout) -> Iterator[str]:
    """Yield the lines that are printed."""
    rings = package_cycles(checkout)
    yield f"package cycles: {len(rings)}"
    yield from (f"  {' <-> '.join(ring)}" for ring in rings)
    circles = module_circles(checkout)
    yield f"module circles: {len(circles)}"
    yield from (f"  {' <-> '.join(circle)}" for circle in circles)
    shared = shared_class_names(checkout)
    yield f"names used for two classes or more: {len(shared)}"
    yield from (f"  {name}: {', '.join(modules)}" for name, modules in shared.items())
    found = fragments(checkout)
    yield f'docstrings that begin with "Of": {len(found)}'
    yield from (f"  {each}" for each in found)
    yield from _reading_list("how is a step timed", step_modules(checkout))
    yield from _reading_list("how does auto search", search_modules(checkout))


def _reading_list(question: str, modules: Sequence[Module]) -> Iterator[str]:
    yield f"{question}: {len(modules)} files, {sum(each.lines for each in modules):,} lines"
    yield from (f"  {module.lines:>4} {module.name}" for module in modules)


def _circles(edges: Mapping[str, frozenset[str] | set[str]]) -> list[list[str]]:
    """Return the sets of names that import each other, of the names that each imports."""
    after = {name: _following(name, edges) for name in edges}
    circles = {
        frozenset(other for other in after[name] if name in after.get(other, ()))
        for name in edges
        if name in after[name]
    }
    return sorted(map(sorted, circles))


def _following(name: str, edges: Mapping[str, frozenset[str] | set[str]]) -> set[str]:
    """Return the names that one imports, directly or by way of others."""
    found: set[str] = set()
    left = list(edges[name])
    while left:
        other = left.pop()
        if other not in found:
            found.add(other)
            left += edges.get(other, ())
    return found


def _name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    print("\n".join(report(Checkout(Path(sys.argv[1]) if sys.argv[1:] else ROOT))))
