"""The exercises folder: lists and loads exercises with their speed thresholds, and maps `.cu` files to them."""

from __future__ import annotations

import builtins
import functools
import importlib.util
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pytest_gpulab.exercise import Exercise, ExerciseError, SpeedTier

from .grade import OWN
from .time_limits import OWN_CODE

if TYPE_CHECKING:  # loaded by the exercises that use it
    from pytest_gpulab.program_exercise import ProgramExercise


# Systems and browsers name a second copy `scan (1).cu`, `scan - Copy.cu`, `scan copy.cu` or `scan copy 2.cu`.
_COPY = re.compile(r"(?: - copy| copy(?: \d+)?)?(?: ?\(\d+\))?$")


def stems_of(name: str) -> tuple[str, str]:
    """Return a file's stem without capitals, first as it is, then without the marks of a copy."""
    stem = Path(name).stem.casefold()
    return stem, _COPY.sub("", stem, count=1)


class BrokenExercise(Exception):
    """An exercise.py that cannot be loaded: its problems, a sentence each, and the line that failed; 0 if unknown.

    `traceback_text` is the traceback without this package's frames.
    """

    def __init__(self, name: str, traceback_text: str, problems: tuple[str, ...] = (), line: int = 0) -> None:
        super().__init__(f"exercise {name!r} cannot be loaded:\n{traceback_text}")
        self.name, self.traceback_text, self.problems, self.line = name, traceback_text, problems, line


class Thresholds(NamedTuple):
    """The thresholds of one exercise; builtins only, because they are sent to other processes."""

    source: str = OWN  # the origin of the thresholds, in words
    by_tier: Mapping[str, float] = {}  # those that replace the tiers' own; the names stay
    measuring: bool = False  # whether the run makes a calibration: times are as precise as possible, no speed fails

    def of(self, tier: SpeedTier) -> float:
        """Return the required speedup over the baseline."""
        return float(self.by_tier.get(tier.name, tier.threshold))

    def is_calibrated(self, tier: SpeedTier) -> bool:
        """Return whether the tier's threshold comes from a calibration."""
        return tier.name in self.by_tier


UNCALIBRATED = Thresholds()


class LoadedExercise(NamedTuple):
    """An exercise with its folder (for baselines and headers) and its speed thresholds."""

    name: str
    folder: Path
    exercise: Exercise
    thresholds: Thresholds = UNCALIBRATED


class LoadedProgram(NamedTuple):
    """An exercise that asks for a program, with its folder (for headers)."""

    name: str
    folder: Path
    exercise: ProgramExercise
    thresholds: Thresholds = UNCALIBRATED


Loaded: TypeAlias = LoadedExercise | LoadedProgram


class Catalogue:
    """The exercises of a folder, which need not exist: every sub-folder with an `exercise.py`, sorted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.names: tuple[str, ...] = tuple(sorted(path.parent.name for path in self.folder.glob("*/exercise.py")))
        self._loaded: dict[str, Loaded | BrokenExercise] = {}

    def load(self, name: str) -> Loaded:
        """Import the exercise of that name, once, or raise KeyError.

        Raises BrokenExercise if its exercise.py raises or binds no `Exercise` to the name `exercise`.
        """
        if name not in self.names:
            raise KeyError(name)
        if name not in self._loaded:
            self._loaded[name] = _load(name, self.folder / name)
        loaded = self._loaded[name]
        if isinstance(loaded, BrokenExercise):
            raise BrokenExercise(loaded.name, loaded.traceback_text, loaded.problems, loaded.line)
        return loaded

    def exercise_of(self, path: Path) -> str | None:
        """Return the exercise that a `.cu` file belongs to: by its stem, else by its folder's name.

        Capitals and marks of a copy make no difference, as for the submissions of a class. If the file is a link, its
        own name and folder count. If the folder is a link, its target counts, too.
        """
        known = {name.casefold(): name for name in self.names}
        folders = (path.absolute().parent.name, path.parent.resolve().name)
        names = (*stems_of(path.name), *(name.casefold() for name in folders))
        return next((known[name] for name in names if name in known), None)

    def is_submission(self, path: Path) -> bool:
        """Return whether a `.cu` file is graded: in an exercise's own folder only the student's copy is."""
        resolved = path.parent.resolve() / path.name  # the name counts, also where it is a link
        if not resolved.is_relative_to(self.folder):
            return True
        name = resolved.relative_to(self.folder).parts[0]
        return name not in self.names or resolved == self._own_copy(name)

    def own_copies(self) -> tuple[Path, ...]:
        """Return the existing copies of the student, `<name>/<name>.cu`."""
        return tuple(path for path in map(self._own_copy, self.names) if path.is_file())

    def _own_copy(self, name: str) -> Path:
        return self.folder / name / f"{name}.cu"


importing = threading.RLock()
"""The lock of imports of exercises, which change `sys.path` temporarily."""


def _load(name: str, folder: Path) -> Loaded | BrokenExercise:
    path = folder / "exercise.py"
    try:
        with OWN_CODE.of("exercise.py"):
            module = _import(f"gpulab_exercise_{name}", path)
    except (Exception, SystemExit) as error:
        frames = _instructors_frames(error, folder)
        text = "".join(traceback.format_exception(type(error), error, frames))
        line = error.lineno if isinstance(error, SyntaxError) else frames.tb_lineno if frames else 0
        problems = str(error).splitlines() if isinstance(error, ExerciseError) else [text.splitlines()[-1]]
        return BrokenExercise(name, text, tuple(problems), line or 0)
    exercise = getattr(module, "exercise", None)
    programs = sys.modules.get("pytest_gpulab.program_exercise")  # not loaded if no exercise asks for a program
    if programs is not None and isinstance(exercise, programs.ProgramExercise):
        return LoadedProgram(name, folder, exercise)
    if not isinstance(exercise, Exercise):
        found = "nothing" if exercise is None else f"a {type(exercise).__name__}"
        problem = f"the name `exercise` must be bound to an Exercise, but it holds {found}"
        return BrokenExercise(name, f"{path}: {problem}\n", (problem,))
    return LoadedExercise(name, folder, exercise)


def _import(module_name: str, path: Path) -> ModuleType:
    neighbours = _Neighbours(path.parent)
    spec = importlib.util.spec_from_file_location(module_name, path, loader=neighbours.loader(module_name, str(path)))
    assert spec is not None and spec.loader is not None  # a .py file always has both
    module = importlib.util.module_from_spec(spec)
    with neighbours.importable():
        sys.modules[module_name] = module  # dataclasses look their module up by name while it is executed
        spec.loader.exec_module(module)
    return module


class _Neighbours:
    """An importer for the modules beside one exercise, visible to its own code only.

    Two exercises may each have a helpers.py, so neither may stay in `sys.modules`. But a function may import it long
    after the exercise was loaded. So code in the folder has its own `__import__`, and its own views of `IMPORTERS`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, ModuleType] = {}
        self._finder = self._finder_in(folder)

    def loader(self, name: str, path: str) -> SourceFileLoader:
        """Return a loader for a file in the folder."""
        return _Loader(name, path, {**vars(builtins), "__import__": self._imported})

    def find_spec(self, name: str, path: Iterable[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Find a module beside the exercise, or in a package there, as an entry of `sys.meta_path`."""
        if path is None:
            return self._finder.find_spec(name)
        own = (Path(folder) for folder in path if Path(folder).is_relative_to(self._folder))
        return next(filter(None, (self._finder_in(folder).find_spec(name) for folder in own)), None)

    def _finder_in(self, folder: Path) -> FileFinder:
        return FileFinder(str(folder), (self.loader, SOURCE_SUFFIXES))  # type: ignore[arg-type]  # it calls it

    @contextmanager
    def importable(self, top: str = "") -> Iterator[None]:
        """Make the folder's modules importable to import `top`, and hide them afterwards.

        A module `top` from another folder is hidden before.
        """
        with importing:
            path_before, modules_before = sys.path[:], dict(sys.modules)
            sys.path.insert(0, str(self._folder))
            sys.meta_path.insert(0, self)
            if self._has(top) and not self._is_own(sys.modules.get(top)):
                sys.modules.pop(top, None)
            sys.modules.update(self._modules)
            try:
                yield
            finally:
                sys.meta_path.remove(self)
                sys.path[:] = path_before
                self._hide(modules_before)

    def _hide(self, modules_before: Mapping[str, ModuleType]) -> None:
        for name, module in list(sys.modules.items()):
            if module is not modules_before.get(name) and self._is_own(module):
                self._modules[name] = module
                del sys.modules[name]
        sys.modules.update({name: modules_before[name] for name in modules_before.keys() - sys.modules.keys()})

    def _is_own(self, module: ModuleType | None) -> bool:
        file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
        return isinstance(file, str) and Path(file).is_relative_to(self._folder)

    def _has(self, top: str) -> bool:
        return bool(top) and (top in self._modules or self._finder.find_spec(top) is not None)

    def _imported(self, name: str, globals: Mapping[str, Any] | None = None, *rest: Any, **named: Any) -> ModuleType:
        is_relative = bool(rest[2] if len(rest) > 2 else named.get("level"))
        top = str((globals or {}).get("__package__") if is_relative else name).partition(".")[0]
        with self.importable(top) if self._has(top) else nullcontext():
            module = builtins.__import__(name, globals, *rest, **named)
        return _Importer(module, self) if module.__name__ in IMPORTERS else module


IMPORTERS = ("importlib", "importlib.util", "pickle", "pkgutil", "runpy")
"""Modules with functions that import a module by its name."""


class _Importer(ModuleType):
    """A view of a module; its functions find the modules beside an exercise."""

    def __init__(self, module: ModuleType, neighbours: _Neighbours) -> None:
        super().__init__(module.__name__, module.__doc__)
        self._module, self._neighbours = module, neighbours

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, ModuleType) and value.__name__ in IMPORTERS:
            return _Importer(value, self._neighbours)
        if not callable(value) or isinstance(value, type):
            return value

        @functools.wraps(value)
        def found(*args: Any, **named: Any) -> Any:
            first = next(iter((*args, *named.values())), "")
            top = first.partition(".")[0] if isinstance(first, str) else ""
            with self._neighbours.importable(top):
                return value(*args, **named)

        return found


class _Loader(SourceFileLoader):
    """A loader that executes a module with other built-in names."""

    def __init__(self, name: str, path: str, names: dict[str, object]) -> None:
        super().__init__(name, path)
        self._names = names

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled file as it is now: kept bytecode is stale if two versions have one size and second."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module; its functions keep the names."""
        vars(module)["__builtins__"] = self._names
        super().exec_module(module)


def _instructors_frames(error: BaseException, folder: Path) -> TracebackType | None:
    """Return the frames from the first one in the exercise's folder on; a syntax error has no such frame."""
    frames = error.__traceback__
    while frames is not None and not Path(frames.tb_frame.f_code.co_filename).is_relative_to(folder):
        frames = frames.tb_next
    return frames
