from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from monograph.errors import InputError
from monograph.runtime import output_memory as pool_module
from monograph.runtime.output_memory import (
    ALIGNMENT,
    HUGE_PAGE,
    MAPPED_FROM,
    Buffer,
    OutputPool,
    size_class,
)
from tests.runtime.together import on_threads

KIB, MIB = 1 << 10, 1 << 20


def address_of(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1000, 1 << 16, MIB - 1, MIB, 5_000_001])
def test_size_class_holds_the_request_with_little_left_over(nbytes: int) -> None:
    size = size_class(nbytes)
    assert size >= max(nbytes, 1)
    assert size % ALIGNMENT == 0
    assert size - nbytes <= max(nbytes / 8, ALIGNMENT)
    assert size_class(size) == size


@pytest.mark.parametrize("nbytes", [0, 4, 4 * KIB, MAPPED_FROM - 1, MAPPED_FROM, 5 * MIB])
def test_array_is_aligned_writable_and_at_the_address(nbytes: int) -> None:
    buffer = OutputPool().acquire(nbytes)
    array = buffer.as_array(np.uint8, (nbytes,))
    assert buffer.address % ALIGNMENT == 0
    assert buffer.nbytes >= nbytes
    assert address_of(array) == buffer.address or nbytes == 0
    assert array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
    array[:] = 7
    assert int(array.sum()) == 7 * nbytes


def test_large_memory_starts_on_a_huge_page() -> None:
    assert OutputPool().acquire(8 * MIB).address % HUGE_PAGE == 0


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.complex64, np.bool_, np.int8])
def test_array_has_the_dtype_and_shape(dtype: type[np.generic]) -> None:
    array = OutputPool().acquire(3 * 5 * 16).as_array(dtype, (3, 5))
    assert array.dtype == dtype and array.shape == (3, 5)


def test_array_of_bfloat16() -> None:
    array = OutputPool().acquire(64).as_array(ml_dtypes.bfloat16, (4, 8))
    array[:] = 1.5
    assert array.astype(np.float32).sum() == 48


def test_array_without_axes() -> None:
    array = OutputPool().acquire(4).as_array(np.float32, ())
    array[()] = 2.5
    assert array.shape == () and float(array) == 2.5


def test_array_larger_than_its_buffer_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be placed") as caught:
        OutputPool().acquire(100).as_array(np.float32, (1000,))
    assert "128 bytes" in str(caught.value)


def test_negative_size_is_refused() -> None:
    with pytest.raises(InputError, match="smaller than nothing"):
        OutputPool().acquire(-1)


def test_negative_limit_is_refused() -> None:
    with pytest.raises(InputError, match="less than nothing"):
        OutputPool(idle_limit=-1)


@pytest.mark.parametrize("nbytes", [4, 64 * KIB, MIB, 8 * MIB])
def test_memory_is_used_again_after_the_last_holder_lets_go(nbytes: int) -> None:
    pool = OutputPool()
    buffer = pool.acquire(nbytes)
    address = buffer.address
    array = buffer.as_array(np.uint8, (nbytes,))
    del buffer
    assert pool.acquire(nbytes).address != address
    del array
    addresses = {pool.acquire(nbytes).address for _ in range(10)}
    assert address in addresses


def test_steady_state_takes_nothing_from_the_system() -> None:
    pool = OutputPool()
    pool.acquire(MIB)
    owned = pool.owned_bytes
    for _ in range(100):
        pool.acquire(MIB).as_array(np.float32, (MIB // 4,))
    assert pool.owned_bytes == owned == MIB


def test_a_request_of_nearly_the_same_size_reuses_memory() -> None:
    pool = OutputPool()
    address = pool.acquire(1000 * KIB).address
    assert pool.acquire(1001 * KIB).address == address


def test_two_holders_never_share_memory() -> None:
    pool = OutputPool()
    buffers = [pool.acquire(KIB) for _ in range(50)]
    assert len({buffer.address for buffer in buffers}) == 50


# Each of these takes an array of 64 × 64 float32 and keeps hold of its memory in another way. The
# array itself is dropped; the function returned reads the first 16 numbers through what is left.
Reader = Callable[[], list[float]]


def hold_buffer_attribute(array: np.ndarray) -> Reader:
    base = array.base
    return lambda: np.frombuffer(base, np.float32)[:16].tolist()


def hold_memoryview(array: np.ndarray) -> Reader:
    view = memoryview(array)
    return lambda: [view[0, column] for column in range(16)]


def hold_memoryview_of_data(array: np.ndarray) -> Reader:
    view = array.data.cast("B").cast("f")
    return lambda: view[:16].tolist()


def hold_dlpack_capsule(array: np.ndarray) -> Reader:
    class Carrier:
        capsule = array.__dlpack__()

        def __dlpack__(self, **_: object) -> object:
            return self.capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    carrier = Carrier()
    return lambda: np.from_dlpack(carrier)[0, :16].tolist()


def hold_iterator(array: np.ndarray) -> Reader:
    flat = array.flat
    return lambda: flat[:16].tolist()


def hold_array_struct(array: np.ndarray) -> Reader:
    class Carrier:
        __array_struct__ = array.__array_struct__

    carrier = Carrier()
    return lambda: np.asarray(carrier)[0, :16].tolist()


def hold_as_strided(array: np.ndarray) -> Reader:
    view = np.lib.stride_tricks.as_strided(array, (16, 2), (4, 0))
    return lambda: view[:, 1].tolist()


def hold_subclass(array: np.ndarray) -> Reader:
    view = array.view(np.recarray)
    return lambda: view[0, :16].tolist()


def hold_cycle(array: np.ndarray) -> Reader:
    knot: list[object] = [array]
    knot.append(knot)
    return lambda: knot[0][0, :16].tolist()  # type: ignore[index]


def array_holder(make: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], Reader]:
    def hold(array: np.ndarray) -> Reader:
        kept = make(array)
        return lambda: kept.reshape(-1)[:16].tolist()

    return hold


HOLDERS: dict[str, Callable[[np.ndarray], Reader]] = {
    "the array": array_holder(lambda array: array),
    "a slice": array_holder(lambda array: array[:1, :16]),
    "a view of a view": array_holder(lambda array: array.T[:16].T[:1]),
    "another dtype": array_holder(lambda array: array.view(np.uint32)[:1].view(np.float32)),
    "a reshape": array_holder(lambda array: array.reshape(2, -1)),
    "from_dlpack": array_holder(np.from_dlpack),
    "a read-only view": array_holder(lambda array: np.broadcast_to(array[0], (2, 64))[0]),
    "frombuffer": array_holder(lambda array: np.frombuffer(array, np.float32)),
    "asarray of a memoryview": array_holder(lambda array: np.asarray(memoryview(array))),
    "the buffer": hold_buffer_attribute,
    "memoryview": hold_memoryview,
    "array.data": hold_memoryview_of_data,
    "a DLPack capsule": hold_dlpack_capsule,
    "an iterator": hold_iterator,
    "array_struct": hold_array_struct,
    "as_strided": hold_as_strided,
    "a subclass": hold_subclass,
    "a reference cycle": hold_cycle,
}


def overwrite(pool: OutputPool, nbytes: int, rounds: int) -> None:
    """Take memory again and again, one piece and two at a time, and write over all of it."""
    for _ in range(rounds // 2):
        first = pool.acquire(nbytes).as_array(np.uint8, (nbytes,))
        first.fill(0xEE)
        pool.acquire(nbytes).as_array(np.uint8, (nbytes,)).fill(0xEE)


def check_contents_survive(hold: Callable[[np.ndarray], Reader]) -> None:
    pool = OutputPool()
    buffer = pool.acquire(64 * 64 * 4)
    address = buffer.address
    array = buffer.as_array(np.float32, (64, 64))
    array[:] = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    read = hold(array)
    del buffer, array
    overwrite(pool, 64 * 64 * 4, rounds=1000)
    gc.collect()
    assert read() == [float(number) for number in range(16)]
    del read
    gc.collect()
    again = [pool.acquire(64 * 64 * 4) for _ in range(3)]
    assert address in {buffer.address for buffer in again}, "the memory was never returned"


@pytest.mark.parametrize("name", HOLDERS)
def test_contents_survive_while_held_through(name: str) -> None:
    check_contents_survive(HOLDERS[name])


@pytest.mark.parametrize("way", ["from_numpy", "as_tensor", "from_dlpack", "view", "to_numpy"])
def test_contents_survive_while_torch_holds_them(way: str) -> None:
    torch = pytest.importorskip("torch")
    ways = {
        "from_numpy": torch.from_numpy,
        "as_tensor": torch.as_tensor,
        "from_dlpack": torch.from_dlpack,
        "view": lambda array: torch.from_numpy(array).view(-1)[:100],
        "to_numpy": lambda array: torch.from_numpy(array)[:10].numpy(),
    }

    def hold(array: np.ndarray) -> Reader:
        kept = ways[way](array)
        return lambda: kept.reshape(-1)[:16].tolist()

    check_contents_survive(hold)


def test_an_object_revived_by_its_finalizer_keeps_its_output() -> None:
    pool = OutputPool()
    revived: list[object] = []

    class Phoenix:
        def __init__(self) -> None:
            self.knot = self
            self.array = pool.acquire(KIB).as_array(np.uint8, (KIB,))
            self.array.fill(5)

        def __del__(self) -> None:
            revived.append(self)

    Phoenix()
    gc.collect()
    overwrite(pool, KIB, rounds=10)
    assert len(revived) == 1
    assert set(revived[0].array.tolist()) == {5}  # type: ignore[attr-defined]
    revived[0].__dict__.clear()


def test_idle_memory_stays_within_the_limit_and_the_oldest_goes_first() -> None:
    pool = OutputPool(idle_limit=4 * MIB)
    sizes = [1 * MIB, 2 * MIB, 1 * MIB + 512 * KIB, 3 * MIB]
    buffers = [pool.acquire(size) for size in sizes]
    addresses = [buffer.address for buffer in buffers]
    while buffers:
        del buffers[0]
        assert pool.idle_bytes <= 4 * MIB
    assert pool.idle_bytes == pool.owned_bytes == 3 * MIB
    assert pool.acquire(3 * MIB).address == addresses[3]


def test_a_limit_of_nothing_keeps_nothing() -> None:
    pool = OutputPool(idle_limit=0)
    pool.acquire(MIB)
    assert pool.idle_bytes == pool.owned_bytes == 0


def test_clear_gives_back_what_is_idle_and_spares_what_is_lent() -> None:
    pool = OutputPool()
    lent = pool.acquire(MIB).as_array(np.uint8, (MIB,))
    lent.fill(3)
    pool.acquire(2 * MIB)
    pool.clear()
    assert pool.idle_bytes == 0 and pool.owned_bytes == MIB
    assert int(lent.max()) == int(lent.min()) == 3


def test_an_output_outlives_its_pool() -> None:
    pool = OutputPool()
    array = pool.acquire(MIB).as_array(np.uint8, (MIB,))
    array.fill(9)
    del pool
    gc.collect()
    assert int(array.min()) == 9


def mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


@needs_proc
def test_deleting_a_pool_unmaps_its_idle_memory_at_once() -> None:
    gc.disable()
    try:
        before = mapped_bytes()
        pool = OutputPool()
        held = pool.acquire(64 * MIB)
        pool.acquire(128 * MIB)
        assert mapped_bytes() - before > 190 * MIB
        del pool
        assert mapped_bytes() - before < 100 * MIB
        del held
        assert mapped_bytes() - before < 16 * MIB
    finally:
        gc.enable()


@needs_proc
def test_memory_is_bounded_over_ten_thousand_rounds() -> None:
    pool = OutputPool()
    pool.acquire(MIB).as_array(np.uint8, (MIB,))[::4096] = 1
    before = resident_bytes()
    for _ in range(10_000):
        pool.acquire(MIB).as_array(np.uint8, (MIB,))[::4096] = 1
    assert pool.owned_bytes == MIB
    assert resident_bytes() - before < 16 * MIB


@needs_proc
def test_fresh_memory_is_not_touched() -> None:
    before = resident_bytes()
    buffer = OutputPool().acquire(256 * MIB)
    assert buffer.as_array(np.uint8, (256 * MIB,)).size == 256 * MIB
    assert resident_bytes() - before < 32 * MIB


def test_lease_is_returned_at_the_end_of_its_block() -> None:
    pool = OutputPool()
    with pool.lease(10_000) as scratch:
        address = scratch.address
        assert scratch.nbytes >= 10_000 and address % ALIGNMENT == 0
        assert pool.lease(10_000).address != address
    assert pool.idle_bytes == pool.owned_bytes == 2 * size_class(10_000)


def test_lease_is_returned_once() -> None:
    pool = OutputPool()
    scratch = pool.lease(KIB)
    scratch.release()
    scratch.release()
    del scratch
    assert pool.idle_bytes == KIB


def test_lease_is_returned_when_its_block_fails() -> None:
    pool = OutputPool()
    with pytest.raises(ZeroDivisionError), pool.lease(KIB):
        raise ZeroDivisionError
    assert pool.idle_bytes == KIB


def test_lease_that_is_dropped_is_returned() -> None:
    pool = OutputPool()
    pool.lease(KIB)
    assert pool.idle_bytes == KIB


def test_threads_never_see_each_others_writes() -> None:
    pool = OutputPool(idle_limit=64 * KIB)
    clashes: list[int] = []

    def work(mark: int) -> None:
        kept: list[np.ndarray] = []
        for round_number in range(1500):
            nbytes = (1 + round_number % 5) * 8 * KIB
            array = pool.acquire(nbytes).as_array(np.uint8, (nbytes,))
            array.fill(mark)
            kept.append(array)
            with pool.lease(nbytes) as scratch:
                if scratch.address == address_of(array):
                    clashes.append(mark)
            if len(kept) > 4:
                oldest = kept.pop(0)
                if oldest[0] != mark or oldest[-1] != mark or oldest.max() != oldest.min():
                    clashes.append(mark)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        on_threads(work, range(1, 6))
    finally:
        sys.setswitchinterval(interval)
    assert not clashes
    assert pool.owned_bytes == pool.idle_bytes <= 64 * KIB


def test_a_finalizer_may_use_the_pool_while_the_pool_is_at_work() -> None:
    pool = OutputPool(idle_limit=0)

    class Nosy:
        def __init__(self) -> None:
            self.knot = self

        def __del__(self) -> None:
            pool.acquire(MIB)
            pool.clear()

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            Nosy()
            pool.acquire(MIB).as_array(np.uint8, (MIB,))
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert pool.owned_bytes == pool.idle_bytes == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_process_trims_even_if_a_parent_thread_was_trimming() -> None:
    program = """
import os
from monograph.runtime.output_memory import OutputPool
pool = OutputPool(idle_limit=0)
pool._settling.acquire()
child = os.fork()
if child == 0:
    pool.acquire(1 << 20)
    os._exit(0 if pool.owned_bytes == 0 else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_out_of_memory_is_explained_after_idle_memory_was_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = OutputPool()
    pool.acquire(MIB)

    def refuse(*_: object, **__: object) -> mmap.mmap:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(pool_module.mmap, "mmap", refuse)
    with pytest.raises(pool_module.EvaluationError, match="no memory for 2,097,152 bytes"):
        pool.acquire(2 * MIB)
    assert pool.owned_bytes == 0


def test_many_different_sizes_are_not_remembered_for_ever() -> None:
    pool = OutputPool(idle_limit=0)
    for nbytes in range(10_000):
        pool.acquire(nbytes)
    assert len(pool._idle_for) <= pool_module.REMEMBERED_SIZES
    assert pool.owned_bytes == 0


def test_buffer_is_itself_a_buffer() -> None:
    buffer = OutputPool().acquire(128)
    assert isinstance(buffer, Buffer)
    assert memoryview(buffer).nbytes == 128


def test_nothing_is_put_back_while_the_interpreter_ends() -> None:
    pool = OutputPool()
    storage = pool._take(100)
    pool._put_back(storage, lambda: True)
    assert pool.idle_bytes == 0
    pool._put_back(storage)
    assert pool.idle_bytes == storage.size
