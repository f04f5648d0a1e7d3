"""What answers to the tasks of `solutions/gelu.py` give that make a known mistake."""

import torch
import torch.nn.functional as F

from lab.task import mistake

LOG2_E = 1.4426950408889634


# SiLU


@mistake("silu", "this is the sigmoid alone: the factor `x` is missing.")
def gives_the_sigmoid(x):
    return torch.sigmoid(x)


@mistake("silu", "`x` is divided by the sigmoid: multiply.")
def divides_by_the_sigmoid(x):
    return x / torch.sigmoid(x)


@mistake(
    "silu", "this is `x` times the sigmoid of `-x`: the sign in the power is wrong."
)
def turns_the_sigmoid_round(x):
    return x * torch.sigmoid(-x)


# Quick GeLU


def quick(scale):
    """Return quick GeLU with a factor in front of x in the power of 2."""
    return lambda x: x / (1 + torch.exp2(scale * x))


@mistake("quick_gelu", "the power has base e: `scale` must be multiplied by log2(e).")
def keeps_base_e(x):
    return quick(-1.702)(x)


@mistake("quick_gelu", "`scale` is divided by log2(e): multiply by it.")
def divides_by_the_logarithm(x):
    return quick(-1.702 / LOG2_E)(x)


@mistake("quick_gelu", "`scale` has the wrong sign: the power is that of `-1.702 * x`.")
def forgets_the_sign(x):
    return quick(1.702 * LOG2_E)(x)


@mistake("quick_gelu", "1.702 is missing from `scale`: this is SiLU.")
def forgets_the_factor(x):
    return quick(-LOG2_E)(x)


@mistake("quick_gelu", "`scale` has too few digits: it is -2.45546696.")
def rounds_the_constant(x):
    return quick(-2.455)(x)


@mistake(
    "quick_gelu",
    "this is the exact GeLU, by `erf`: quick GeLU is x * sigmoid(1.702 * x).",
)
def computes_the_exact_gelu(x):
    return F.gelu(x)


@mistake("quick_gelu", "this is GeLU by tanh: quick GeLU is x * sigmoid(1.702 * x).")
def computes_the_gelu_by_tanh(x):
    return F.gelu(x, approximate="tanh")


# Backward through quick GeLU


def slope(x, factor=1.702):
    s = torch.sigmoid(1.702 * x)
    return s + s * (1 - s) * x * factor


@mistake("quick_gelu_backward", "the gradient that comes in, `grad`, is missing.")
def forgets_the_gradient(x, grad):
    return slope(x)


@mistake(
    "quick_gelu_backward",
    "the second term of the derivative is missing: the sigmoid depends on `x` as well.",
)
def takes_the_sigmoid_for_a_constant(x, grad):
    return grad * torch.sigmoid(1.702 * x)


@mistake("quick_gelu_backward", "the first term of the derivative, `s`, is missing.")
def forgets_the_first_term(x, grad):
    return grad * (slope(x) - torch.sigmoid(1.702 * x))


@mistake("quick_gelu_backward", "the factor 1.702 is missing from the second term.")
def forgets_the_inner_factor(x, grad):
    return grad * slope(x, 1)


@mistake("quick_gelu_backward", "`x` is missing from the second term.")
def forgets_x(x, grad):
    s = torch.sigmoid(1.702 * x)
    return grad * (s + 1.702 * s * (1 - s))


@mistake("quick_gelu_backward", "the sigmoid is taken of `x`: take it of `1.702 * x`.")
def takes_the_sigmoid_of_x(x, grad):
    s = torch.sigmoid(x)
    return grad * (s + s * (1 - s) * x * 1.702)


# Softplus


@mistake("softplus", "this is max(x, 0) alone: the logarithm is missing.")
def gives_relu(x):
    return x.clamp(min=0)


@mistake("softplus", "this is the logarithm alone: max(x, 0) is missing.")
def gives_the_logarithm(x):
    return torch.log1p(torch.exp(-x.abs()))


@mistake("softplus", "the logarithm has base 2: `tl.log` is the natural one.")
def takes_base_2(x):
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())) * LOG2_E


# GeGLU


def tanh_gelu(x):
    return F.gelu(x, approximate="tanh")


@mistake("geglu", "this is the exact GeLU, by `erf`: the task asks for the tanh form.")
def takes_the_exact_form(x):
    gate, up = x.chunk(2, 1)
    return F.gelu(gate) * up


@mistake(
    "geglu", "this is quick GeLU, sigmoid(1.702 * x): the task asks for the tanh form."
)
def takes_the_quick_form(x):
    gate, up = x.chunk(2, 1)
    return gate * torch.sigmoid(1.702 * gate) * up


@mistake("geglu", "the halves have changed places: GeLU takes the first one.")
def swaps_the_halves(x):
    up, gate = x.chunk(2, 1)
    return tanh_gelu(gate) * up


@mistake(
    "geglu",
    "neighbours are paired, columns 2j and 2j + 1: out[i, j] takes columns j and N + j.",
)
def pairs_neighbours(x):
    return tanh_gelu(x[:, ::2]) * x[:, 1::2]


@mistake("geglu", "both halves pass through GeLU: the second one is only a factor.")
def activates_both(x):
    gate, up = x.chunk(2, 1)
    return tanh_gelu(gate) * tanh_gelu(up)


@mistake("geglu", "the second half is missing: this is GeLU of the first.")
def forgets_the_second_half(x):
    return tanh_gelu(x.chunk(2, 1)[0])
