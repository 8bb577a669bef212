import gc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice, Program

from pytest_gpulab.devices.protocol import CannotSimulate, Hazard, KernelFault, LaunchError
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.execution.wave import Wave
from pytest_gpulab.exercise import Array, Buffer, ExerciseError, Launch, Plan
from pytest_gpulab.grading.plans.replay import (
    AGAIN,
    FIRST,
    FIRST_WARP_FIRST,
    LAST_BLOCK_FIRST,
    LAST_WARP_FIRST,
    Arrays,
    Poison,
    Repetition,
    Run,
    replay,
)

BUFFERS = (
    Buffer("in", "input", np.int32, (4,)),
    Buffer("work", "input", np.int32, (4,), may_change=True),
    Buffer("flags", "scratch", np.uint32, (2,), zeroed=True),
    Buffer("partials", "scratch", np.float32, (3,)),
    Buffer("out", "output", np.float64, (2, 2)),
)
NAMES = tuple(buffer.name for buffer in BUFFERS)
INPUTS: Mapping[str, Array] = {"in": np.arange(4, dtype=np.int32), "work": np.arange(4, 8, dtype=np.int32)}


def run(kernel: Any, plan: Plan | None = None, repetition: Any = FIRST, **rest: Any) -> tuple[Run, FakeDevice]:
    device = FakeDevice({"p": Program({"k": kernel})})
    plan = plan or Plan(BUFFERS, (Launch("k", (1,), (4,), (*NAMES, np.uint32(4))),))
    return replay(device, device.compile("p"), plan, INPUTS, repetition, **rest), device


def test_constants_take_their_contents_from_inputs() -> None:
    with pytest.raises(ExerciseError, match="constant 'weights' takes its contents from 'out', which is not an input"):
        Plan(BUFFERS, (Launch("k", (1,), (4,), NAMES),), constants={"weights": "out"})


def seen_by_kernel(repetition: Any) -> dict[str, Array]:
    seen: dict[str, Array] = {}

    def look(options: Any, *args: Any) -> None:
        seen.update({name: arg.get() for name, arg in zip(NAMES, args, strict=False)})
        seen["options"], seen["scalar"] = options, args[-1]

    run(look, repetition=repetition)
    return seen


def test_inputs_are_filled_flags_zeroed_and_everything_else_poisoned() -> None:
    seen = seen_by_kernel(FIRST)
    assert seen["in"].tolist() == [0, 1, 2, 3] and seen["work"].tolist() == [4, 5, 6, 7]
    assert seen["flags"].tolist() == [0, 0]
    assert np.isnan(seen["partials"]).all() and np.isnan(seen["out"]).all()
    assert seen["out"].shape == (2, 2)
    assert seen["scalar"] == np.uint32(4) and seen["options"] == FIRST.options


@pytest.mark.parametrize(
    ("repetition", "schedule"),
    [
        (AGAIN, "lockstep"),
        (LAST_WARP_FIRST, "warps-reversed"),
        (FIRST_WARP_FIRST, "warps"),
        (LAST_BLOCK_FIRST, "blocks-reversed"),
    ],
)
def test_repetitions_differ_in_schedule_fill_and_poison(repetition: Repetition, schedule: str) -> None:
    assert (FIRST.options.schedule, FIRST.options.fill) == ("lockstep", 0xFF)
    assert (repetition.options.schedule, repetition.options.fill) == (schedule, 0xA5)
    first, second = seen_by_kernel(FIRST), seen_by_kernel(repetition)
    assert np.isnan(second["partials"]).all() and np.isnan(second["out"]).all()
    assert first["out"].tobytes() != second["out"].tobytes()
    assert first["partials"].tobytes() != second["partials"].tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint32", "int64", "complex64", "bool"])
@pytest.mark.parametrize("poison", [FIRST.poison, AGAIN.poison])
def test_poison_is_recognised_until_it_is_overwritten_or_computed_with(poison: Poison, dtype: str) -> None:
    array = poison.filled((2, 3), dtype)
    assert array.shape == (2, 3) and array.dtype == dtype
    assert poison.remaining(array).tolist() == [True] * 6
    array[0, 1] = 1
    assert poison.remaining(array).tolist() == [True, False, True, True, True, True]
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            assert np.isnan(array[1, 1]) and not poison.remaining(array + array.dtype.type(1)).any()


def test_outputs_profiles_hazards_and_prints_come_back_and_the_memory_is_freed() -> None:
    hazard = Hazard("barrier", "divergent barrier")

    def kernel(options: Any, *args: Any) -> dict[str, Any]:
        args[4].values[...] = 7
        args[1].values[...] = 0  # this input may change
        return {"hazards": (hazard,), "output": "hi\n", "estimated_ms": 2.0}

    plan = Plan(BUFFERS, (Launch("k", (1,), (4,), (*NAMES, np.uint32(4))),) * 2)
    result, device = run(kernel, plan)
    assert result.error is None
    assert {name: values.tolist() for name, values in result.outputs.items()} == {"out": [[7, 7], [7, 7]]}
    assert result.changed == {}
    told = tuple(replace(hazard, launch=f"launch {number} of 2 (`k`)") for number in (1, 2))
    assert result.hazards == told and result.printed == "hi\nhi\n"
    assert [profile.estimated_ms for profile in result.profiles] == [2.0, 2.0]
    assert device.held == []


def test_an_input_that_may_not_change_is_verified() -> None:
    def kernel(options: Any, *args: Any) -> None:
        args[0].values[1:3] = 99

    assert run(kernel)[0].changed == {"in": 2}


def test_the_grader_keeps_its_own_copy_of_the_inputs() -> None:
    def kernel(options: Any, *args: Any) -> None:
        args[0].values[...] = 99

    run(kernel)
    assert INPUTS["in"].tolist() == [0, 1, 2, 3]


def test_damage_in_a_guard_zone_is_a_memory_hazard() -> None:
    def kernel(options: Any, *args: Any) -> None:
        args[4].report = "4 bytes written right after the end"

    (hazard,) = run(kernel)[0].hazards
    assert (hazard.kind, hazard.what) == ("memory", "4 bytes written right after the end of out")


@pytest.mark.parametrize(
    "error", [KernelFault("trap", "trap", output="last words"), LaunchError("too big"), CannotSimulate("tex")]
)
def test_an_error_ends_the_replay_and_frees_the_memory(error: Exception) -> None:
    calls: list[int] = []

    def kernel(options: Any, *args: Any) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 2:
            raise error
        return {"output": "first\n"}

    plan = Plan(BUFFERS, (Launch("k", (1,), (4,), (*NAMES, np.uint32(4))),) * 3)
    result, device = run(kernel, plan)
    assert result.error is error or (str(result.error), result.error.launch) == (str(error), "launch 2 of 3 (`k`)")
    assert len(calls) == 2 and len(result.profiles) == 1 and result.outputs == {}
    assert result.printed == "first\n" + ("last words" if isinstance(error, KernelFault) else "")
    assert device.held == []


def test_a_device_that_went_down_with_the_kernel_need_not_free() -> None:
    device = FakeDevice({"p": Program()})
    device.broken = True
    plan = Plan(BUFFERS, (Launch("k", (1,), (4,), NAMES),))
    result = replay(device, device.compile("p"), plan, INPUTS, FIRST)
    assert isinstance(result.error, LaunchError)


def test_a_constant_is_set_and_needs_no_memory_of_its_own() -> None:
    buffers = (Buffer("table", "input", np.int32, (4,)), Buffer("out", "output", np.int32, (1,)))
    plan = Plan(buffers, (Launch("k", (1,), (1,), ("out",)),), {"lut": "table"})
    device = FakeDevice({"p": Program({"k": lambda options, *args: {"output": str(len(device.held))}})})
    module = device.compile("p")
    result = replay(device, module, plan, {"table": INPUTS["in"]}, FIRST)
    assert module.constants["lut"].tolist() == [0, 1, 2, 3]
    assert result.printed == "1"


def test_reading_back_can_be_left_out() -> None:
    result, _ = run(lambda options, *args: {"output": "x"}, read_back=False)
    assert result.outputs == {} and result.printed == "x"


def test_arrays_that_are_kept_stay_where_they_are_and_are_filled_anew() -> None:
    seen: list[tuple[list[int], bytes]] = []

    def kernel(options: Any, *args: Any) -> None:
        seen.append(([id(arg) for arg in args[:-1]], b"".join(arg.values.tobytes() for arg in args[:-1])))
        for arg in args[:-1]:
            arg.values[...] = 0

    device = FakeDevice({"p": Program({"k": kernel})})
    plan = Plan(BUFFERS, (Launch("k", (1,), (4,), (*NAMES, np.uint32(4))),))
    arrays = Arrays(device, plan)
    for _ in range(2):
        replay(device, device.compile("p"), plan, INPUTS, FIRST, arrays=arrays)
    assert seen[0] == seen[1]
    assert len(device.held) == len(BUFFERS)
    arrays.free()
    assert device.held == []


def test_a_fault_keeps_no_memory_of_its_launch() -> None:
    """A grader keeps faults until the end: their launches' memory would add up."""
    device = SimulatedDevice()
    module = device.compile(
        "__global__ void k(int *out) { __shared__ int s[9000]; s[*out] = 1; out[1] = s[*out + 1]; }"
    )
    plan = Plan((Buffer("out", "output", np.int32, (1,)),), (Launch("k", (4,), (32,), ("out",)),))
    kept = replay(device, module, plan, {}, FIRST)
    assert isinstance(kept.error, KernelFault)
    gc.collect()
    assert not [found for found in gc.get_objects() if isinstance(found, Wave)]


def test_buffers_are_allocated_in_any_order_and_read_back_in_that_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated: list[int] = []
    real = FakeDevice.array

    def array(self: FakeDevice, values: Any, dtype: Any = None) -> Any:
        allocated.append(np.size(values))
        return real(self, values, dtype)

    monkeypatch.setattr(FakeDevice, "array", array)
    buffers = tuple(Buffer(f"out{k}", "output", np.int32, (k,)) for k in range(1, 4))
    plan = Plan(buffers, (Launch("k", (1,), (1,), tuple(buffer.name for buffer in buffers)),))
    orders = set()
    for _ in range(64):
        allocated.clear()
        ended, _ = run(lambda options, *outputs: None, plan)
        orders.add(tuple(allocated))
        assert tuple(ended.outputs) == ("out1", "out2", "out3")
    assert len(orders) > 1
