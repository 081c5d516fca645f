"""The fields of tensors: what is found tells what torch tells."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from monograph.runtime.cpu.tensor_layout import _is_read, dtype_number, read_tensor, tensor_layout
from monograph.targets.cpu.entry_point.python_call import TensorLayout


@pytest.fixture(scope="module")
def layout() -> TensorLayout:
    found = tensor_layout()
    assert found is not None, "this version of torch is one that we know"
    return found


def test_fields_are_read(layout: TensorLayout) -> None:
    tensor = torch.zeros(4, 6, dtype=torch.float16)[1:, ::2]
    found = read_tensor(tensor, layout)
    assert found["sizes"] == [3, 3] and found["strides"] == [6, 2]
    assert found["data"] == tensor.data_ptr() and found["keys"] in layout.keys


def test_dtypes_have_numbers_of_their_own(layout: TensorLayout) -> None:
    dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.uint8)
    assert len({dtype_number(dtype, layout) for dtype in dtypes}) == len(dtypes)


@pytest.mark.parametrize(
    "tensor",
    (
        torch.ones(2).to("meta"),
        torch.ones(2).to_sparse(),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(2, dtype=torch.complex64).conj().imag,
        torch._efficientzerotensor((2,)),
        torch._to_functional_tensor(torch.ones(2)),
    ),
    ids=("meta", "sparse", "conjugate", "negated", "zero", "functional"),
)
def test_stand_ins_have_other_keys(layout: TensorLayout, tensor: torch.Tensor) -> None:
    assert int(torch._C._dispatch_keys(tensor).raw_repr()) not in layout.keys


def test_another_layout_is_noticed(layout: TensorLayout) -> None:
    tensor = torch.zeros(256).as_strided((3, 5), (70, 11), 13)
    assert _is_read(tensor, layout)
    assert not _is_read(tensor, replace(layout, offset=layout.offset + 8))
    assert not _is_read(tensor, replace(layout, axes=layout.axes + 8))
    assert not _is_read(tensor, replace(layout, keys_at=layout.keys_at - 8))
