"""The arrows between the parts of the package, and what it imports when."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from importlinter.cli import lint_imports
from lean_pytest import WITHOUT

import pytest_gpulab

PACKAGE = Path(pytest_gpulab.__file__).parent
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
MOST_MODULES = 14
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_imports_point_one_way() -> None:
    assert lint_imports(config_filename=str(PYPROJECT), no_cache=True) == 0


def test_every_package_lists_its_modules() -> None:
    listed = {package: set(re.findall(r"`(\w+)`", _module_list(package))) for package in PACKAGES if package != PACKAGE}
    there = {package: {path.stem for path in package.glob("[!_]*") if _is_module(path)} for package in listed}
    assert listed == there


def _module_list(package: Path) -> str:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    lines = re.findall(r"^- ([^:]*):", docstring, re.MULTILINE)
    return " ".join(lines)


def _is_module(path: Path) -> bool:
    return path.suffix == ".py" or (path / "__init__.py").exists()


def test_no_package_is_crowded() -> None:
    crowded = {package: len(list(package.glob("[!_]*.py"))) for package in PACKAGES}
    assert {package: count for package, count in crowded.items() if count > MOST_MODULES} == {}


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
        "devices devices.system devices.system.processes"
        " plugin plugin.configuration plugin.hooks plugin.items plugin.session plugin.settings"
    )


def test_a_session_without_the_flag_loads_nothing_heavy(tmp_path: Path) -> None:
    test = tmp_path / "test_modules.py"
    test.write_text(
        "import sys\n"
        "def test_modules():\n"
        "    heavy = {'numpy', 'tabulate', 'cuda', 'pycuda', 'pynvml', 'pytest_gpulab.grading'}\n"
        "    assert not heavy & set(sys.modules) and 'pytest_gpulab.plugin' in sys.modules\n"
        "    loader = sys.modules['pytest_gpulab.plugin.hooks'].__loader__\n"
        "    assert type(loader).__name__ == 'SourceFileLoader', 'pytest rewrites the package in each session'\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", *WITHOUT, str(test)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


CORRECT_CHECK = """
import sys, pytest

class Probe:
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        sys.setprofile(self.profiler)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            loaded = sorted(name for name in sys.modules if name.startswith("pytest_gpulab."))
            print("modules:", *(name for name in loaded if not hasattr(sys.modules[name], "__path__")))

    def profiler(self, frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith("<_Z6reduce"):  # the first basic block
            sys.setprofile(None)
            names = []
            while not names or names[-1] != "runtest":
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            print("frames:", *reversed(names))

options = ["-q", "-s", "-p", "no:cacheprovider", "--gpulab", "--gpulab-device=sim", "--rootdir=."]
sys.exit(pytest.main([*options, sys.argv[1]], plugins=[Probe()]))
"""
OF_OTHER_CHECKS = re.compile(
    r"pytest_gpulab\.(grading\.(isolation|speed|tools|usage|annotate)"
    r"|grading\.(correctness\.(safety|checked_launches)|calibration\.fit|diagnosis\.(wrong_output|explain))"
    r"|devices\.(cuda|simulated\.(cost|sass|counting\.counters))|course|reports\.(terminal|files|pages|instructor))\b"
)
MOST_MODULES_LOADED = 66
MOST_FRAMES = 14  # from the item's `runtest` to the first NumPy operation of a kernel: a stack trace fits a screen


def walk_for_contributors() -> set[str]:
    """Return the modules that docs/contributor.md links in its walk through a `correct` check."""
    page = (PYPROJECT.parent / "docs" / "contributor.md").read_text(encoding="utf-8")
    walk = re.search(r"^## Walk: a `correct` check$(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    assert walk
    return {path.replace("/", ".") for path in re.findall(r"\(\.\./(pytest_gpulab/[\w/]+)\.py\)", walk[1])}


def test_a_correct_check_loads_no_module_of_other_checks_and_takes_few_frames(tmp_path: Path) -> None:
    source = PYPROJECT.parent / "solutions" / "reduction"
    kernel = tmp_path / "reduction.cu"
    kernel.write_bytes(min(source.glob("*.cu")).read_bytes())
    command = [sys.executable, "-c", CORRECT_CHECK, f"{kernel}::correct[n=33]"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # with an empty cache, so that the file is compiled
    done = subprocess.run(command, capture_output=True, text=True, cwd=PYPROJECT.parent, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    modules, frames = (re.search(rf"^{what}: (.*)$", done.stdout, re.MULTILINE) for what in ("modules", "frames"))
    assert modules and frames, done.stdout
    loaded = modules[1].split()
    assert [name for name in loaded if OF_OTHER_CHECKS.match(name)] == []
    assert walk_for_contributors() - {"pytest_gpulab.grading.diagnosis.wrong_output"} <= set(loaded)
    assert len(loaded) <= MOST_MODULES_LOADED
    assert len(frames[1].split()) - 1 <= MOST_FRAMES, frames[1]
