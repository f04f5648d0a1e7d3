"""GeLU on the way to the forms that ship, in ever fewer instructions.

First the definition, then the tanh form; each is a function of a float32 x.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from ..gelu import normal_short


@triton.jit
def gelu_erf(x):
    """x * Phi(x), by Triton's erf."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_libdevice_erf(x):
    """x * Phi(x), by the erf of libdevice."""
    return 0.5 * x * (1.0 + libdevice.erf(x * 0.7071067811865476))


@triton.jit
def gelu_libdevice_tanh(x):
    """The tanh form as it is published.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.
    """
    return (
        0.5
        * x
        * (1.0 + libdevice.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    )


@triton.jit
def gelu_sigmoid(x):
    """The tanh form through 1 + tanh(u) = 2 sigmoid(2u)."""
    return x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


@triton.jit
def gelu_libdevice_exp(x):
    """The same sigmoid, by the exponential of libdevice."""
    return x / (1.0 + libdevice.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))


@triton.jit
def gelu_polynomial(x):
    """x * Phi(x), to more digits than 16 bits can hold."""
    phi, bell = normal_short(x, 1.0 / (1.0 + 0.31 * tl.abs(x)))
    return x * phi
