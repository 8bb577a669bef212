"""The array that an access was meant for, derived from the origin of its address, and the offset in that array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_gpulab.devices.protocol import Hazard, KernelFault, Location
from pytest_gpulab.devices.simulated.translation.sites import FROM_MEMORY, Site
from pytest_gpulab.devices.source.names import unmangle_local

from .spaces import NULL_BYTES, InvalidAccess, Range

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.execution.launch_state import LaunchState

_WRAPPED = 1 << 32  # a negative unsigned index is too large by this
POINTER_BYTES = 8
FAR_BYTES = 1 << 20  # from the nearest array; farther addresses are assigned to no array


@dataclass(frozen=True)
class _Candidate:
    """An array that an access may be meant for; see `Location`."""

    start: int
    nbytes: int
    symbol: str = ""
    parameter: int | None = None
    base: int | None = None


def located(launch: LaunchState, fault: KernelFault, hazards: tuple[Hazard, ...]) -> KernelFault:
    """Return the fault with the kernel's output and hazards so far, and with the array if the access missed one."""
    what, location = fault.what, None
    if isinstance(fault, InvalidAccess):
        location = locate(launch, fault.site, fault.space, fault.address)
        misaligned = "the address is misaligned" if fault.code == "misaligned" else ""
        what = ": ".join(filter(None, (fault.what, misaligned, str(location or fault.nowhere))))
        if location is None and fault.address < NULL_BYTES and launch.heap is not None and launch.heap.has_refused:
            what += "; malloc() or new had returned null, because the heap was full"
    return KernelFault(
        fault.code, what, fault.where, fault.lane, launch.output, location, hazards=hazards, remains=fault.remains,
        is_stalled=fault.is_stalled,
    )  # fmt: skip


def locate(launch: LaunchState, site: Site, space: str, address: int) -> Location | None:
    """Return the location of an address in a space relative to the nearest array; None if no array is near.

    The space is `global`, `constant`, `shared` or `local`. An address is negative if the kernel computed a negative
    sum.
    """
    stack = launch.program.stack
    if stack is not None and space == "local" and address >= stack[0]:
        return None  # in a call frame of a recursive function: its arrays are unknown
    element = launch.program.origins.element(site)
    names = launch.program.origins.of(site)
    known = list(_banked(launch, space) if space in ("shared", "local") else _global(launch, names))
    is_known = any(name in names for _, name in known)
    if not is_known and space == "global" and address < NULL_BYTES:
        return None
    meant = [candidate for candidate, name in known if name in names or not is_known]
    offsets = [(_offset(address, candidate, element), candidate) for candidate in meant]
    offset, nearest = min(offsets, key=lambda entry: _distance(entry[0], entry[1].nbytes), default=(0, None))
    if nearest is None or (not is_known and _distance(offset, nearest.nbytes) > FAR_BYTES):
        return None
    identity = nearest.symbol, nearest.parameter, nearest.base
    return Location(space, offset, nearest.nbytes, site.nbytes, element, site.access, *identity)


def shared_variables(launch: LaunchState) -> dict[str, tuple[int, int]]:
    """Return the shared variables by their names in the source, to their start and size in bytes."""
    return {candidate.symbol: (candidate.start, candidate.nbytes) for candidate, _ in _banked(launch, "shared")}


def shared_bounds(launch: LaunchState, site: Site) -> Range:
    """Return the range of shared memory that an instruction may access: one variable if it is certain, else all.

    The compiler chooses the order of variables. So an index out of bounds that hits another variable is an error, too.
    """
    if site.number not in launch.bounds:
        names = launch.program.origins.of(site)
        meant = [candidate for candidate, name in _banked(launch, "shared") if name in names]
        is_certain = len(meant) == 1 and FROM_MEMORY not in names
        variable = meant[0] if is_certain else _Candidate(0, launch.shared_bytes)
        launch.bounds[site.number] = variable.start, variable.start + variable.nbytes
    return launch.bounds[site.number]


def _offset(address: int, candidate: _Candidate, element: int) -> int:
    """Return the offset from an array's start in bytes; a wrapped unsigned index counts as negative."""
    offset = address - candidate.start
    wrapped = _WRAPPED * element
    return offset - wrapped if wrapped // 2 <= offset < wrapped else offset


def _distance(offset: int, nbytes: int) -> int:
    return -offset if offset < 0 else max(offset - nbytes + 1, 0)


def _banked(launch: LaunchState, space: str) -> Iterator[tuple[_Candidate, str]]:
    """Yield the variables in shared or local memory, with their mangled names."""
    program = launch.program
    dynamic = launch.shared_bytes - program.static_shared
    for name, (of, start, nbytes) in program.banked.items():
        if of == space:
            yield _Candidate(start, nbytes or dynamic, unmangle_local(name)), name


def _global(launch: LaunchState, names: frozenset[str]) -> Iterator[tuple[_Candidate, str]]:
    """Yield the arrays of pointer parameters, the variables among `names`, and all other allocations."""
    program, arena = launch.program, launch.arena
    known = set()
    for position, ((offset, size), name) in enumerate(zip(program.parameters, program.parameter_names, strict=True)):
        address = int.from_bytes(launch.parameters[offset : offset + size], "little")
        allocation = arena.find(address) if size == POINTER_BYTES else None
        if allocation is not None:
            known.add(allocation.base)
            yield _Candidate(address, allocation.nbytes, "", position, allocation.base), name
    for name in names & program.addresses.keys():
        allocation = arena.find(program.addresses[name])
        if allocation is not None:
            known.add(allocation.base)
            yield _Candidate(allocation.base, allocation.nbytes, unmangle_local(name)), name
    for allocation in arena.allocations:
        if allocation.base not in known and not allocation.is_heap:
            yield _Candidate(allocation.base, allocation.nbytes, base=allocation.base), ""
