"""Grade student-written CUDA kernels with pytest, on an NVIDIA GPU or on a simulated one."""

__version__ = "0.1.0"


class UserError(Exception):
    """An error that its message explains in one line: something that the user gave or the machine lacks."""


def load_ipython_extension(shell: object) -> None:
    """Add the magics `%%gpulab` and `%%cuda` to a notebook: IPython calls this for `%load_ext pytest_gpulab`."""
    from importlib import import_module

    import_module("pytest_gpulab.notebook").load(shell)
