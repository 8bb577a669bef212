"""Configuration of all tests: pytester runs pytest inside a test, and the slowest files come first."""

import os
import re
import sys
from collections.abc import Generator, Iterator
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from pytest_gpulab.devices.system.processes import ONE_THREAD

os.environ.pop("COLUMNS", None)  # readline puts it there, and reports would be that wide
# Without bytecode, each of the hundreds of processes would compile pytest's plugins again: 0.25 to 0.9 s of CPU time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

with pytest.MonkeyPatch.context() as patch:  # the processes that tests start get the environment as it was
    for name, count in ONE_THREAD.items():  # on busy cores, two threads take up to 15 times the CPU time of one
        patch.setenv(name, count)
    import numpy  # noqa: F401  # reads them when it is loaded

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parent
# Files that take 25 s and more while both of two cores are busy, the longest first: one that pytest-xdist comes to last
# leaves all but one core without work.
LONGEST = (
    "docs/test_samples.py",
    "program_exercises/test_reduction_host.py",
    "kernels/test_honest_kernels.py",
    "kernels/test_wrong_reduction.py",
    "command/test_package.py",
    "command/test_grade.py",
    "grading/test_statistics.py",
    "programs/test_tutorial_programs.py",
    "command/test_watch.py",
    "devices/test_host_names.py",
    "devices/test_compiler_process.py",
    "plugin/test_class_runs.py",
    "grading/test_remote.py",
    "grading/test_explanation.py",
    "command/test_run_builds.py",
    "course/test_executor.py",
    "grading/test_cross_check.py",
    "course/test_cluster.py",
    "command/test_runtime_calls.py",
    "docs/test_own_course.py",
    "devices/test_nvcc_sandbox.py",
    "reports/test_pages_in_browser.py",
    "devices/test_host_code.py",
    "programs/test_program_hazards.py",
    "plugin/test_class_progress.py",
    "course/test_cluster_connection.py",
    "grading/test_smallest_inputs_replayed.py",
    "program_exercises/test_grading_programs.py",
    "reports/test_explained_page.py",
)

# What the tests of a folder need, but for files that are marked `unit`.
NEEDS = {"plugin": "e2e", "docs": "docs", "gpu": "gpu", "test_architecture.py": "e2e", "test_packaging.py": "e2e"}
# These grade whole files; other folders' tests run the same lines of the package.
UNMEASURED = ("kernels", "docs", "programs", "benchmarks", "mutants")
_INCLUDED = re.compile(r'#\s*include\s*"([^"]*)"')
_STARTS_A_PROCESS = ("subprocess.Popen", "os.fork", "os.posix_spawn")


def pytest_configure(config: pytest.Config) -> None:
    """Run each benchmark once, as a test of its kernel, unless benchmarks are what was asked for.

    Where the package is not installed, its folder is in PYTHONPATH: any pytest that a test runs is to find the plugin.
    """
    if not entry_points(group="pytest11", name="gpulab"):
        os.environ.setdefault("PYTEST_PLUGINS", "pytest_gpulab.plugin")
    if not config.getoption("benchmark_only", False):
        config.option.benchmark_disable = True
    config.option.loadscopereorder = False  # pytest-xdist would begin with the files that have most tests


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without unit tests for `-m unit`: three of four have none, and take most of the start."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    is_left_out = config.option.markexpr == "unit" and is_test and "mark.unit" not in collection_path.read_text()
    return True if is_left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need, and put the tests of the longest files first."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if not any(item.iter_markers("unit")):
            item.add_marker(NEEDS.get(folder, "simulator"))
        if folder in UNMEASURED:
            item.add_marker("unmeasured")
    place = {TESTS / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def _each_text_is_compiled_once() -> Iterator[None]:
    """Keep NVRTC's answers in this process: many tests compile the same kernel, some with headers that take 0.5 s."""
    from pytest_gpulab.devices.compiler import nvrtc_program

    kept: dict[bytes, nvrtc_program.Answer] = {}
    compiled = nvrtc_program._compiled

    def kept_or_compiled(request: nvrtc_program.Request, options: list[str]) -> nvrtc_program.Answer:
        if not request.files.keys() >= set(_INCLUDED.findall(request.text)):  # a file on the disk, which may change
            return compiled(request, options)
        folder = Path.cwd() if request.output == "cubin" else None  # machine code names it
        key = sha256(repr((request, options, folder)).encode()).digest()
        if key not in kept:
            kept[key] = compiled(request, options)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc_program, "_compiled", kept_or_compiled)
        yield


@pytest.fixture(scope="session", autouse=True)
def _coverage_of_the_tests_own_process_only() -> None:
    """Coverage is not measured in processes that tests start: they would take half as long again."""
    os.environ.pop("COVERAGE_PROCESS_START", None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure coverage in the first test of each function, if it is not marked `unmeasured`.

    It takes half as long again, and a function's other parameters run nearly the same lines.
    """
    function = item.nodeid.partition("[")[0]
    is_measured = function not in _seen and not any(item.iter_markers("unmeasured"))
    _seen.add(function)
    module = sys.modules.get("coverage")  # loaded where Python measures from its start
    measuring = None if is_measured or module is None else module.Coverage.current()
    if measuring:
        measuring.stop()
    result = yield
    if measuring:
        measuring.start()
    return result


_seen: set[str] = set()


@pytest.fixture(autouse=True)
def _no_process_in_unit_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that is marked `unit` and starts a process or compiles."""
    is_unit = request.node.get_closest_marker("unit") is not None
    _forbidden.update(_STARTS_A_PROCESS if is_unit else ())
    with pytest.MonkeyPatch.context() as patch:
        if is_unit:
            patch.setattr("pytest_gpulab.devices.compiler.nvrtc_program._compiled", _no_compiler)
            patch.setattr("pytest_gpulab.devices.compiler.compiler_process.CompilerProcess._compiled", _no_compiler)
        yield
    _forbidden.clear()


_forbidden: set[str] = set()


def _refuse(event: str, _: object) -> None:
    if event in _forbidden:
        raise AssertionError(f"a unit test starts a process ({event}): mark its file otherwise")


def _no_compiler(*_: object) -> None:
    raise AssertionError("a unit test compiles: mark its file otherwise")


sys.addaudithook(_refuse)
