"""A module compiled to PTX: its kernels, their resources and launches."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_gpulab.devices.protocol import (
    DEFAULT_OPTIONS,
    Array,
    CannotSimulate,
    CompileError,
    KernelFault,
    KernelResources,
    LargerLaunch,
    LaunchError,
    LaunchOptions,
    LaunchProfile,
    Memory,
)
from pytest_gpulab.devices.simulated.execution.launch_state import Deadline, LaunchState, Surroundings
from pytest_gpulab.devices.simulated.execution.launching import (
    Extents,
    check_extents,
    pack,
    prepared,
    run_blocks,
    three_extents,
)
from pytest_gpulab.devices.simulated.groups.group import unwritten
from pytest_gpulab.devices.simulated.ptx.reader import parse
from pytest_gpulab.devices.simulated.ptx.syntax import Function, PtxModule
from pytest_gpulab.devices.simulated.translation.program import Program
from pytest_gpulab.devices.simulated.translation.translator import check_length, translate
from pytest_gpulab.devices.source.names import signature, unique_names

from .variables import (
    Variables,
    check_registers,
    clustered_kernels,
    launch_bounds,
    may_exceed_registers,
    oversized,
    static_shared_bytes,
)

if TYPE_CHECKING:  # counting and costs are imported when first needed; correctness checks need none of them
    from pytest_gpulab.devices.compiler.machine_code import MachineBinary
    from pytest_gpulab.devices.hardware.occupancy import KernelOccupancy
    from pytest_gpulab.devices.simulated.counting.counters import Counters, Joined
    from pytest_gpulab.devices.simulated.sass.code import MachineCode
    from pytest_gpulab.devices.simulated.sass.executions import MachineKernel

    from .device import SimulatedDevice

MAX_WORK_DIFFERENCE = 0.05  # relative, between the counted blocks and the others
# A single thread that takes long adds little work, but the launch takes as long as that thread. The last block of an
# honest kernel has a longer path, too: the loop over what is left.
MAX_PATH_RATIO, MAX_MORE_STATEMENTS = 1.5, 200


class SimulatedModule:
    """A module compiled to PTX; kernels are translated on their first launch."""

    def __init__(self, device: SimulatedDevice, ptx: str, log: str, source: tuple[Any, ...]) -> None:
        self._device, self.log, self._source = device, log, source
        self._bounds, self._clustered = launch_bounds(ptx), clustered_kernels(ptx)
        self._binaries: dict[str, MachineBinary] = {}
        if "begin inline asm" in ptx:
            self._check_assembly(ptx)
        self._machine_kernels: dict[str, MachineKernel | None] = {}
        self._joined: dict[str, Joined] = {}
        self._occupancies: dict[tuple[str, int, int], KernelOccupancy] = {}
        self._module: PtxModule = parse(ptx)
        if (refused := oversized(self._module, source[1] if source else "kernel.cu")) is not None:
            raise CompileError(refused)
        if any(self._module.calls):
            self._check_calls()
        entries = {f.name: f for f in self._module.functions.values() if f.entry and f.body}
        self._entries = {name: entries[symbol] for name, symbol in unique_names(entries).items()}
        self.kernels = tuple(self._entries)
        """The `__global__` functions by their unmangled names."""
        self._variables = Variables(self._module, device.arena, source[1] if source else "kernel.cu")
        self.symbols = self._variables.names
        """The `__device__` and `__constant__` variables by their names."""
        for allocation in self._variables.allocations:  # they live as long as the module
            weakref.finalize(self, device.arena.retire, allocation)
        self._programs: dict[str, Program] = {}
        self.has_state = self._variables.may_keep(ptx)
        """True if a launch may leave something behind, which only a used variable can hold."""

    def _check_calls(self) -> None:
        """Raise CompileError if a function is called but not defined."""
        from pytest_gpulab.devices.simulated.translation.calls.inline import undefined

        if (missing := undefined(self._module)) is not None:
            raise CompileError(missing)

    def _check_assembly(self, ptx: str) -> None:
        """Raise CompileError for an instruction that the assembler rejects: only it knows those of the modelled GPU."""
        try:
            self._binary(self._device.gpu.architecture)
        except CompileError as error:
            from .ptx.source_lines import at_source_lines

            raise CompileError(at_source_lines(error.diagnostics, ptx)) from None

    def reset_variables(self) -> None:
        """Give every variable the contents that it has by the source."""
        self._variables.reset()

    def read_symbol(self, name: str) -> bytes:
        """Return a variable's present contents; see `protocol.Module.read_symbol`."""
        return self._variables.read(name)

    def set_constant(self, name: str, values: Array) -> None:
        """Copy an array into a variable; see `protocol.Module.set_constant`. Raises LaunchError as `Variables.set`."""
        self._variables.set(name, values)

    def check_launch(self, kernel: str, grid: Sequence[int], block: Sequence[int], shared_bytes: int = 0) -> None:
        """Check a launch against the limits of the modelled GPU, and of the simulation; see `protocol.LaunchLimits`."""
        entry, gpu = self._entry(kernel), self._device.gpu
        check_length(entry)  # here, because each further variant of a long text takes seconds to compile
        needed, block3 = static_shared_bytes(self._module, entry) + shared_bytes, three_extents(block)
        self._check_extents(kernel, three_extents(grid), block3, needed)
        if may_exceed_registers(self._module, entry, prod(block3), self._bounds.get(entry.name, 0), gpu.limits):
            registers = self._resources_on(gpu.architecture, kernel).registers or 0
            check_registers(kernel, prod(block3), registers, gpu.limits)

    def _check_extents(self, kernel: str, grid: Extents, block: Extents, shared_bytes: int) -> None:
        largest, most = self._device.gpu.limits.largest_shared_bytes, self._bounds.get(self._entry(kernel).name)
        check_extents(kernel, grid, block, shared_bytes, largest, most)

    def _entry(self, kernel: str) -> Function:
        if kernel not in self._entries:
            have = ", ".join(self._entries) or "none"
            raise LaunchError(f"the module has no kernel {kernel!r} (it has: {have})")
        return self._entries[kernel]

    def parameter_bytes(self, kernel: str) -> tuple[int, ...]:
        """Return the size of each of the kernel's parameters; see `protocol.Module.parameter_bytes`."""
        return tuple(parameter.nbytes for parameter in self._entry(kernel).parameters)

    def parameter_types(self, kernel: str) -> tuple[str, ...] | None:
        """Return the parameters' types, such as `const int *`, None if unknown; see `protocol.Module`."""
        return signature(self._entry(kernel).name).parameters

    def alias(self, name: str, kernel: str) -> None:
        """Give a kernel another name; see `protocol.Module.alias`."""
        self._entries[name] = self._entry(kernel)

    def resources(self, kernel: str) -> KernelResources:
        """Return the compiler's figures for a kernel, for the occupancy architecture; see `protocol.Module`."""
        return self._resources_on(self._device.occupancy_architecture, kernel)

    def _resources_on(self, architecture: str, kernel: str) -> KernelResources:
        return self._binary(architecture).resources.get(self._entry(kernel).name, KernelResources())

    def _frame_bytes(self) -> Mapping[str, int]:
        """Return the stack frame of each function on the modelled GPU, by symbol."""
        return self._binary(self._device.gpu.architecture).frame_bytes

    def _binary(self, architecture: str) -> MachineBinary:
        if architecture not in self._binaries:
            from pytest_gpulab.devices.compiler.machine_code import compile_machine_code

            source, filename, *rest = self._source
            self._binaries[architecture] = compile_machine_code(source, filename, architecture, *rest)
        return self._binaries[architecture]

    @cached_property
    def _machine_code(self) -> MachineCode | None:
        """Machine code of all kernels. Reading it once per kernel would take longer than many launches."""
        from pytest_gpulab.devices.simulated.sass.code import machine_code

        architecture = self._device.gpu.architecture
        return machine_code(self._binary(architecture).cubin, architecture, self._module)

    def _machine_kernel(self, kernel: str) -> MachineKernel | None:
        """Return a kernel's machine code for the modelled GPU, or None if it cannot be read, or only in part.

        The code does not show where a call through a pointer leads, nor how often a recursive function calls itself.
        """
        if kernel not in self._machine_kernels:
            from pytest_gpulab.devices.simulated.sass.code import kernel_blocks
            from pytest_gpulab.devices.simulated.sass.executions import MachineKernel
            from pytest_gpulab.devices.simulated.translation.calls.recursion import calls_by_pointer
            from pytest_gpulab.devices.simulated.translation.weights import is_corrected

            statements = [(s, block) for block, step in enumerate(self.program(kernel).steps) for s in step.statements]
            is_complete = self.program(kernel).stack is None and not calls_by_pointer(self._module, self._entry(kernel))
            blocks = kernel_blocks(self._machine_code, self._entry(kernel).name) if is_complete else []
            homes = {s.number: block for s, block in statements if s.number >= 0}
            corrected = frozenset(s.number for s, _ in statements if is_corrected(s))
            self._machine_kernels[kernel] = MachineKernel(blocks, homes, corrected) if blocks else None
        return self._machine_kernels[kernel]

    def _occupancy(self, kernel: str, threads: int, shared_bytes: int) -> KernelOccupancy:
        from pytest_gpulab.devices.hardware.occupancy import MAX_BLOCK_THREADS, BlockNeeds, occupancy_by_rules

        key = (kernel, threads, shared_bytes)
        if key not in self._occupancies:
            needs = BlockNeeds(threads, self.resources(kernel).registers, shared_bytes)
            largest = self._bounds.get(self._entry(kernel).name, MAX_BLOCK_THREADS)
            architecture = self._device.occupancy_architecture
            self._occupancies[key] = occupancy_by_rules(architecture, kernel, needs, largest)
        return self._occupancies[key]

    def program(self, kernel: str) -> Program:
        """Return the translated kernel, or raise LaunchError if there is none, or CannotSimulate."""
        entry = self._entry(kernel)
        if kernel not in self._programs:
            self._programs[kernel] = translate(self._module, entry, self._variables.addresses, self._frame_bytes)
        return self._programs[kernel]

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Memory | np.generic],
        shared_bytes: int = 0,
        options: LaunchOptions = DEFAULT_OPTIONS,
    ) -> LaunchProfile:
        """Run a kernel to its end; see `protocol.Module.launch`."""
        program = self.program(kernel)
        is_clustered = options.clustered or self._entry(kernel).name in self._clustered
        if is_clustered and (needing := program.needs_cluster) is not None:
            raise CannotSimulate("thread block clusters", needing.where)
        launch = self._launch_state(kernel, three_extents(grid), three_extents(block), args, shared_bytes, options)
        try:
            with prepared(launch, self._device.gpu.sms):
                ran = run_blocks(launch, self._device.gpu.sms)
        except KernelFault as fault:
            fault.read_per_thread = launch.read_per_thread(args)
            raise
        declared = launch.shared_bytes - program.reserved_shared
        profile = LaunchProfile(
            kernel, launch.grid, launch.block, resources=KernelResources(shared_bytes=declared),
            hazards=tuple(launch.hazards.values()), output=launch.output,
            order_free=launch.is_order_free, garbage_free=launch.is_garbage_free,
            unset=program.unset_lines if options.check else (),
            unchecked=launch.unchecked, read_per_thread=launch.read_per_thread(args),
            counted_share=ran / prod(launch.grid), representative=_is_representative(launch, ran), work=launch.work,
            may_wait=launch.may_wait,
        )  # fmt: skip
        if launch.counters is None:
            return profile
        counted = self._counted(profile, launch.counters, ran, declared)
        larger = options.larger or LargerLaunch(prod(launch.grid))
        return self._estimated(counted, launch.counters, declared, larger) if options.is_estimated else counted

    def _launch_state(
        self,
        kernel: str,
        grid: Extents,
        block: Extents,
        args: Sequence[Memory | np.generic],
        shared_bytes: int,
        options: LaunchOptions,
    ) -> LaunchState:
        """Return a launch that is ready to run, or raise LaunchError if the kernel or the device does not allow it."""
        program = self.program(kernel)
        if shared_bytes < 0:
            raise LaunchError(
                f"{kernel}: {shared_bytes} bytes of dynamic shared memory; the number must not be negative"
            )
        self._check_extents(kernel, grid, block, program.static_shared - program.reserved_shared + shared_bytes)
        total = program.static_shared if not shared_bytes else -(-program.static_shared // 16) * 16 + shared_bytes
        is_counted = options.count or options.is_estimated
        return LaunchState(
            program, self._device, grid, block, pack(program.parameters, kernel, args), total, options,
            self._counters(kernel, options.is_estimated) if is_counted else None,
            Deadline(options.time_limit_s, options.stall_limit_s), unwritten(program.codes, options.fill),
            Surroundings(self._device.gpu.sms, grid, block, options.schedule, options.fill),
        )  # fmt: skip

    def _counters(self, kernel: str, estimated: bool) -> Counters:
        from pytest_gpulab.devices.simulated.counting.counters import Counters
        from pytest_gpulab.devices.simulated.counting.workload import Workload

        program = self.program(kernel)
        if kernel not in self._joined:
            self._joined[kernel] = self._joined_accesses(kernel)
        joined = self._joined[kernel]
        return Counters(program, Workload(program, self._device.gpu, joined.loads) if estimated else None, joined)

    def _joined_accesses(self, kernel: str) -> Joined:
        """Return the accesses that the assembler may have joined; see `sass.joins`."""
        from pytest_gpulab.devices.simulated.counting.counters import Joined
        from pytest_gpulab.devices.simulated.sass.joins import PtxAccess, joined_atomics, joined_loads, joined_widths

        machine, sites = self._machine_kernel(kernel), self.program(kernel).sites
        atomics = frozenset(site.number for site in sites if site.kind in ("count", "integer"))
        if machine is None:
            return Joined({}, atomics)
        shared = [site for site in sites if site.space == "shared" and site.op in ("ld", "st")]
        accesses = [PtxAccess(site.index, site.number, site.op, site.nbytes) for site in shared]
        widths = joined_widths(machine.blocks, machine.homes, accesses)
        return Joined(widths, joined_atomics(machine.blocks, atomics), joined_loads(machine.blocks))

    def _counted(self, profile: LaunchProfile, counters: Counters, ran: int, shared_bytes: int) -> LaunchProfile:
        from pytest_gpulab.devices.simulated.counting.accounts import Accounts, launch_figures

        blocks = profile.grid[0] * profile.grid[1] * profile.grid[2]
        threads = profile.block[0] * profile.block[1] * profile.block[2]
        accounts = Accounts(counters, self._machine_kernel(profile.kernel), ran * threads)
        totals = accounts.totals(blocks / ran)
        totals["gpulab__warps.sum"] = blocks * -(-threads // 32)
        totals["gpulab__warps_at_barriers.sum"] = counters.spread.warps * blocks / ran
        if (error := counters.sampling_error(blocks)) is not None:
            totals["gpulab__sampling_error.pct"] = 100 * error
        found = self._occupancy(profile.kernel, threads, shared_bytes)
        totals |= launch_figures(self.resources(profile.kernel), found.occupancy)
        return profile._replace(
            counters=totals, lines=accounts.lines(blocks / ran), occupancy=found.occupancy,
            resources=self.resources(profile.kernel), kernel_occupancy=found, instruction_source=accounts.source,
        )  # fmt: skip

    def _estimated(
        self, counted: LaunchProfile, counters: Counters, shared_bytes: int, larger: LargerLaunch
    ) -> LaunchProfile:
        from pytest_gpulab.devices.hardware.occupancy import achieved_occupancy
        from pytest_gpulab.devices.simulated.cost.bottleneck import bottleneck
        from pytest_gpulab.devices.simulated.cost.demands import Resident, demands
        from pytest_gpulab.devices.simulated.cost.line_shares import with_shares
        from pytest_gpulab.devices.simulated.cost.model import OVERLAP, estimate
        from pytest_gpulab.devices.simulated.counting.accounts import machine_executions

        assert counters.workload is not None and counted.kernel_occupancy is not None
        gpu, found = self._device.gpu, counted.kernel_occupancy
        blocks, threads = prod(counted.grid), prod(counted.block)
        local_bytes = (self.resources(counted.kernel).local_bytes or 0) * threads
        resident = Resident(local_bytes * found.active_blocks, shared_bytes * found.active_blocks)
        ran = counters.workload.blocks * threads
        kernel = self._machine_kernel(counted.kernel)
        executed = machine_executions(counters, kernel, ran)
        machine = (kernel, executed) if kernel is not None and executed is not None else None
        needs = demands(counters, counters.workload, self._device.arena, gpu, blocks, resident, larger, machine)
        grown = larger.block_work * larger.blocks / blocks
        totals = {name: count * grown for name, count in counted.counters.items()}
        resources = self._resources_on(gpu.architecture, counted.kernel)
        cost = estimate(gpu, totals, needs, larger.blocks, threads, shared_bytes, resources)
        lines = with_shares(counted.lines, cost.parts_ms, OVERLAP)
        return counted._replace(
            lines=lines,
            estimated_ms=cost.elapsed_ms * larger.share,
            bottleneck=bottleneck(cost, totals, lines, needs),
            kernel_occupancy=replace(found, achieved=achieved_occupancy(found, gpu.sms, larger.blocks)),
        )


def _is_representative(launch: LaunchState, counted: int) -> bool:
    """Return whether counted blocks issued as many instructions as the others, on average, with paths as long."""
    others = launch.grid[0] * launch.grid[1] * launch.grid[2] - counted
    workload = launch.counters.workload if launch.counters is not None else None
    if workload is None or not others or launch.options.complete_within is None:
        return True
    if launch.longest[False] > MAX_PATH_RATIO * launch.longest[True] + MAX_MORE_STATEMENTS:
        return False
    expected = launch.tally.issued / others
    return abs(workload.issued / counted - expected) <= MAX_WORK_DIFFERENCE * expected
