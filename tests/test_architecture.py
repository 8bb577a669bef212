"""Who may know whom: DESIGN's arrows, held by reading the imports of every module."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_gpulab

PACKAGE = Path(pytest_gpulab.__file__).parent
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

MAY_KNOW: dict[str, set[str]] = {
    "plugin": {
        "options",
        "settings",
        "workbench",
        "collect",
        "job_hooks",
        "class_hooks",
        "summary_hooks",
        "reports",
        "threads",
    },
    "collect": {"settings", "workbench", "course", "grading", "reports"},
    "job_hooks": {"settings", "workbench", "collect", "course", "devices", "grading", "reports"},
    "class_hooks": {"settings", "collect", "summary_hooks", "course", "grading", "reports"},
    "summary_hooks": {"collect"},
    "options": {"settings"},
    "settings": set(),
    "workbench": {"settings", "course", "devices", "grading"},
    "reports": {"course", "grading"},
    "course": {"devices", "exercise", "grading", "threads"},
    "grading": {"devices", "exercise", "threads"},
    "devices": set(),
    "numerics": {"exercise"},
    "concepts": {"exercise"},
    "exercise": set(),
    "threads": set(),
    "__init__": {"devices", "exercise"},
}

KNOW_PYTEST = ("plugin.py", "options.py", "collect.py", "job_hooks.py", "class_hooks.py", "summary_hooks.py")

SIMULATED = "devices/simulated"
SIMULATED_MAY_KNOW: dict[str, set[str]] = {
    "ptx": set(),
    "arithmetic": set(),
    "translation": {"ptx"},
    "execution": {"translation", "arithmetic", "gpus"},  # the constants that contention is priced with
    "machine": {"ptx"},
}


def imported_by(module: str) -> Iterator[str]:
    """Yield the full names that a module imports, at its top or anywhere else, with relative imports resolved."""
    package = ["pytest_gpulab", *Path(module).parent.parts]
    for node in ast.walk(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def part_of(name: str) -> str | None:
    """Return the part of the package that an imported name belongs to."""
    first, _, rest = name.partition(".")
    part = rest.partition(".")[0]
    return part if first == "pytest_gpulab" and not part.startswith("__version") else None


@pytest.mark.parametrize("module", MODULES)
def test_arrows_point_one_way(module: str) -> None:
    own = Path(module).parts[0].removesuffix(".py")
    known = {part_of(name) for name in imported_by(module)} - {own, None, ""}
    assert known <= MAY_KNOW[own]


@pytest.mark.parametrize("module", [module for module in MODULES if module.startswith(f"{SIMULATED}/")])
def test_arrows_inside_the_simulated_gpu_point_one_way(module: str) -> None:
    own = module.removeprefix(f"{SIMULATED}/").split("/")[0]
    if own in SIMULATED_MAY_KNOW:  # the modules beside the folders put the parts together
        prefix = "pytest_gpulab.devices.simulated."
        known = {name.removeprefix(prefix).split(".")[0] for name in imported_by(module) if name.startswith(prefix)}
        assert known - {own} <= SIMULATED_MAY_KNOW[own]


@pytest.mark.parametrize("module", MODULES)
def test_only_hooks_and_nodes_know_pytest(module: str) -> None:
    names = {name.partition(".")[0] for name in imported_by(module)}
    assert "_pytest" not in names
    assert ("pytest" in names) == (module in KNOW_PYTEST)


def test_importing_the_plugin_loads_nothing_but_pytest_and_the_standard_library() -> None:
    script = """
import sys, pytest
before = set(sys.modules)
import pytest_gpulab.plugin
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))
print(*sorted(name for name in set(sys.modules) - before if name.startswith("pytest_gpulab.")))
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    foreign, own = answer.splitlines()
    assert foreign == "pytest_gpulab"
    assert own.replace("pytest_gpulab.", "") == "collect options plugin settings threads workbench"


def test_a_session_without_the_flag_loads_nothing_heavy(tmp_path: Path) -> None:
    test = tmp_path / "test_modules.py"
    test.write_text(
        "import sys\n"
        "def test_modules():\n"
        "    heavy = {'numpy', 'tabulate', 'cuda', 'pycuda', 'pynvml', 'pytest_gpulab.grading'}\n"
        "    assert not heavy & set(sys.modules) and 'pytest_gpulab.plugin' in sys.modules\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "-p", "no:hypothesispytest", str(test)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
