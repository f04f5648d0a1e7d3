"""The bytes that autograd keeps, counted by hand."""

import pytest
import torch

from lab.device import DEVICE
from lab.measure.memory import kept_bytes

N = 2**20  # a multiple of the allocator's blocks in every dtype
X = torch.randn(N, device=DEVICE, requires_grad=True)
WEIGHT = torch.randn(1024, 1024, device=DEVICE, requires_grad=True)


def masked(x: torch.Tensor) -> torch.Tensor:
    return x * (torch.rand_like(x) > 0.5)


@pytest.mark.parametrize(
    "function, expected",
    [
        pytest.param(lambda x: x + 1, 0, id="a sum needs nothing"),
        pytest.param(lambda x: x * x, 0, id="the input was there before"),
        pytest.param(lambda x: x.exp(), 0, id="the result is there anyway"),
        pytest.param(lambda x: x.exp().sin(), 4 * N, id="what lies between"),
        pytest.param(lambda x: (x.exp() * 1).sin().exp(), 4 * N + 4 * N, id="every step between"),
        pytest.param(lambda x: x.exp().sin() + x.exp().cos(), 8 * N, id="equal values in two places"),
        pytest.param(lambda x: (lambda y: y.sin() * y.cos())(x.exp()), 12 * N, id="one tensor saved twice"),
        pytest.param(masked, N, id="a mask takes a byte an element"),
        pytest.param(lambda x: x.view(-1, 1024) @ WEIGHT, 0, id="parameters are not counted"),
        pytest.param(lambda x: (x.view(-1, 1024) @ WEIGHT.t()).exp(), 0, id="nor are views of them"),
    ],
)
def test_bytes_kept(function, expected):
    assert kept_bytes(function, X) == expected
