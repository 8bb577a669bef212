"""Arrays of the CUDA device without a GPU: guard zones, and pieces of memory that are used again."""

import numpy as np
import pytest
from fake_driver import Context, Driver

from pytest_gpulab.devices.cuda.memory import (
    _GUARD,
    APART_BYTES,
    GUARD_BYTES,
    KEEP_BYTES,
    MAX_KEPT_BYTES,
    Blocks,
    CudaMemory,
    copy_within,
    describe_damage,
)
from pytest_gpulab.devices.protocol import DeviceUnavailable
from pytest_gpulab.devices.stopwatch import Copy

pytestmark = pytest.mark.unit


def zone(*written):
    guard = _GUARD.copy()
    for offset in written:
        guard[offset] ^= 0xFF
    return guard


def test_untouched_guard_zones_are_no_damage():
    assert describe_damage(zone(), zone(), itemsize=4, nbytes=400) is None


def test_a_write_one_past_the_end_is_named_by_its_index():
    damage = describe_damage(zone(), zone(0, 1, 2, 3), itemsize=4, nbytes=400)
    assert damage == "invalid __global__ write: `array[100]` written, `array` has 100 elements"


def test_a_write_before_the_start_has_a_negative_index():
    damage = describe_damage(zone(GUARD_BYTES - 4), zone(), itemsize=4, nbytes=400, name="out")
    assert damage == "invalid __global__ write: `out[-1]` written, `out` has 100 elements"


@pytest.mark.parametrize("value", [0, -1, 0x7FC00000, 123456])
def test_no_constant_word_passes_for_the_guard(value):
    word = np.array([value], np.int32).view(np.uint8)
    overwritten = zone()
    overwritten[:4] = word
    assert describe_damage(zone(), overwritten, itemsize=4, nbytes=4) is not None


class Memories(Driver):
    """One piece of memory in earnest, and how often it was read."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def mem_alloc(self, nbytes):
        self.contents = np.zeros(nbytes, np.uint8)
        return 0

    def memcpy_htod(self, target, values):
        self.contents[target:][: values.nbytes] = values.view(np.uint8)

    def memcpy_dtod(self, target, source, nbytes):
        self.contents[target:][:nbytes] = _GUARD

    def memcpy_dtoh(self, target, source):
        self.reads += 1
        target[:] = self.contents[source:][: target.nbytes]


@pytest.mark.parametrize("elements", [0, 1, 1000])
def test_an_array_comes_back_with_its_guard_zones_in_one_copy_after_each_launch(elements):
    context = Context()
    context.driver, context.launches = Memories(), 0
    blocks = Blocks(context)
    blocks._apart = 0
    memory, driver = CudaMemory(blocks, (elements,), np.float32), context.driver
    values = np.arange(elements, dtype=np.float32)
    memory.set(values)
    assert np.array_equal(memory.get(), values) and memory.damage() is None
    memory.guard()
    driver.reads, context.launches = 0, 1
    assert np.array_equal(memory.get(), values) and memory.damage() is None
    assert driver.reads == 1
    assert all(zone.base is None for zone in memory._read[1:])  # or they would keep the contents in memory, too
    driver.contents[memory.address + values.nbytes] ^= 0xFF
    context.launches = 2
    has = f"`array` has {elements} element" + "s" * (elements != 1)
    assert memory.damage() == f"invalid __global__ write: `array[{elements}]` written, {has}"
    assert np.array_equal(memory.get(), values) and memory.damage() is not None
    assert driver.reads == 1 + 2 + 1


class Piece(int):
    def free(self):
        """It was only lent."""


class Space(Driver):
    """Memory in which all arrays lie."""

    def __init__(self):
        super().__init__()
        self.contents, self.end = np.zeros(1 << 16, np.uint8), 0

    def mem_alloc(self, nbytes):
        self.end += nbytes
        return Piece(self.end - nbytes)

    def memcpy_htod(self, target, values):
        self.contents[target:][: values.nbytes] = values.reshape(-1).view(np.uint8)

    def memcpy_dtod(self, target, source, nbytes):
        self.contents[target:][:nbytes] = self.contents[source:][:nbytes].copy()

    def memcpy_dtoh(self, target, source):
        target[:] = self.contents[source:][: target.nbytes]


@pytest.mark.parametrize("elements", [None, slice(6, 11), slice(3, 3), slice(30, 99)])
def test_whole_arrays_and_stretches_of_them_are_copied_within_the_gpu(elements):
    context = Context()
    context.driver = Space()
    blocks = Blocks(context)
    source, target = (CudaMemory(blocks, (4, 8), np.float32) for _ in range(2))
    source.set(np.arange(1, 33, dtype=np.float32).reshape(4, 8))
    copy_within([Copy(source, target, elements)])
    expected = np.zeros(32, np.float32)
    expected[elements or slice(None)] = source.get().reshape(-1)[elements or slice(None)]
    assert np.array_equal(target.get().reshape(-1), expected)
    source.free()
    with pytest.raises(ValueError, match=r"^this array was freed$"):
        copy_within([Copy(source, target, elements)])


def test_a_piece_of_memory_is_used_again_for_the_same_size_alone():
    context = Context()
    blocks, driver = Blocks(context), context.driver
    blocks.give(blocks.take(100), 100)
    assert driver.taken == 1
    blocks.take(100)
    assert driver.taken == 1
    blocks.take(100), blocks.take(99)
    assert driver.taken == 3


def test_the_contents_of_guard_zones_are_copied_to_the_gpu_once():
    blocks = Blocks(Context())
    assert blocks.guard == blocks.guard == (1 << 40) + APART_BYTES
    assert blocks.context.driver.taken == 1
    blocks.close()
    assert blocks.context.driver.taken == 0


def test_little_memory_is_kept_and_all_of_it_given_back():
    context = Context()
    blocks, driver = Blocks(context), context.driver
    blocks.give(blocks.take(MAX_KEPT_BYTES + 1), MAX_KEPT_BYTES + 1)
    assert driver.taken == 0
    pieces = [blocks.take(MAX_KEPT_BYTES) for _ in range(100)]
    for piece in pieces:
        blocks.give(piece, MAX_KEPT_BYTES)
    assert driver.taken == KEEP_BYTES // MAX_KEPT_BYTES
    blocks.close()
    assert driver.taken == 0


def test_a_broken_context_keeps_its_memory():
    context = Context()
    blocks = Blocks(context)
    blocks.give(blocks.take(100), 100)
    context.usable = False
    blocks.close()
    assert context.driver.taken == 1 and blocks in context.users


def test_a_gpu_that_others_filled_is_not_there():
    blocks = Blocks(Context())

    def full(nbytes):
        raise Driver.MemoryError("cuMemAlloc failed: out of memory")

    blocks.context.driver.mem_alloc = full
    with pytest.raises(DeviceUnavailable, match=r"^not enough GPU memory for 1,000 bytes more: out of memory$"):
        blocks.take(1000)


def test_no_array_has_a_place_within_its_memory_that_a_kernel_could_rely_on():
    context = Context()
    places = np.array([CudaMemory(Blocks(context), (4,), np.int32).address for _ in range(64)])
    used = np.bitwise_or.reduce(places), ~np.bitwise_and.reduce(places)
    assert not used[0] % 512
    assert used[0] & used[1] & 0xE00 == 0xE00
