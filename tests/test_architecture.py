"""The arrows between the parts of the package, and what it imports when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from importlinter.cli import lint_imports

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_imports_point_one_way() -> None:
    assert lint_imports(config_filename=str(PYPROJECT), no_cache=True) == 0


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
    assert own.replace("pytest_gpulab.", "") == (
        "devices devices.system devices.system.threads"
        " plugin plugin.hooks plugin.items plugin.options plugin.session plugin.settings"
    )


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
