"""Fat binaries, kernels and variables."""

from collections.abc import Sequence

from pytest_gpulab.devices.errors import CannotSimulate, CompileError
from pytest_gpulab.devices.programs.api import Call, CudaError, Error, api
from pytest_gpulab.devices.programs.device import ProgramModule
from pytest_gpulab.devices.programs.linking import link
from pytest_gpulab.devices.programs.messages import Value
from pytest_gpulab.devices.programs.outcome import LaunchFailure
from pytest_gpulab.devices.programs.session import Kernel, Memory
from pytest_gpulab.devices.programs.shared_memory import whole_pages
from pytest_gpulab.devices.simulated.translation.calls.inline import DEVICE_RUNTIME

from .device_launches import device_runtime, set_attributes
from .properties import attributes


@api("module", form="t")
def load(call: Call, ptx: str) -> Sequence[Value]:
    """Read the PTX of a fat binary, a text per source file that it is linked from; return the module's number."""
    session = call.session
    texts = [text for text in ptx.split("\0") if text.strip()]
    if not texts:
        raise CudaError(Error.INVALID_KERNEL_IMAGE, "the program contains no PTX")
    try:
        if any(DEVICE_RUNTIME in text for text in texts):
            texts.append(device_runtime(session.device.toolchain))
        session.modules.append(ProgramModule(session.device, link(texts)))
        set_attributes(session.modules[-1], attributes(session.device.gpu))
    except (CannotSimulate, CompileError) as error:
        session.outcome.add_failure(LaunchFailure("the program's kernels", error, call.site))
        raise CudaError(Error.NOT_SUPPORTED, is_expected=True) from error
    return [len(session.modules) - 1]


@api("kernel", form="ut")
def kernel(call: Call, module: int, symbol: str) -> Sequence[Value]:
    """Return the number of a kernel, and the size of each of its parameters."""
    session = call.session
    of, given = session.module(module), session.given
    if given is not None and given.kernel(symbol) is not None:
        of = given
    name = of.kernel(symbol)
    if name is None:
        raise CudaError(Error.INVALID_KERNEL_IMAGE, f"the program contains no kernel {symbol}")
    session.kernels.append(Kernel.of(of, name))
    return [len(session.kernels) - 1, *session.kernels[-1].parameter_bytes]


@api("variable", form="utu")
def variable(call: Call, module: int, symbol: str, is_managed: int) -> Sequence[Value]:
    """Return address and size of a variable, and its offset in the shared file."""
    own, given = call.session.module(module), call.session.given
    found = (given.variable(symbol) if given else None) or own.variable(symbol)
    if found is None:
        raise CudaError(Error.INVALID_SYMBOL, f"no kernel of the file uses {symbol}")
    kind = "managed variable" if is_managed else "variable"
    call.session.keep(Memory(found, kind, call.site))
    size = whole_pages(len(found.data)) if is_managed else found.nbytes
    return [found.base, size, call.session.device.arena.offset(found)]
