"""The console command `gpulab`.

- `main`: the command line: a table of subcommands, each loaded when it is chosen.
- `run`: run a whole CUDA program.
- `explain`: run a submission on one small input.
- `grade`, `package`: grade one student's files for a learning platform; write what is uploaded there.
- `watch`: grade a file again whenever it is saved.
- `check`, `new`: check exercises with their baselines and solutions; write a new one.
- `course`, `handout`: write a course repository; write the students' copy of one.
- `device`, `occupancy`: a GPU's properties; the occupancy of a launch.
- `include`: print the folder of `gpulab.cuh`.
- `submission`: the exercise of a file.

A subcommand is a module of its name with `add_arguments(parser)` and `run(arguments)`, which returns the exit code. An
error of the user is a `UserError` of one line.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_gpulab import UserError


class CommandError(UserError):
    """A mistake of the user, or something missing on the machine: one line."""


@contextmanager
def writing() -> Iterator[None]:
    """Turn the errors of new files and folders into a `CommandError`."""
    try:
        yield
    except FileExistsError as error:
        raise CommandError(f"{error.filename} exists already") from None
    except OSError as error:
        raise CommandError(f"cannot write {error.filename}: {error.strerror}") from None
