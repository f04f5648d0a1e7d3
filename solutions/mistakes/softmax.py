"""What answers to the tasks of `solutions/softmax.py` give that make a known mistake."""

import torch

from lab.task import mistake

INF = float("inf")
LOG2_E = 1.4426950408889634


# Row maximum


@mistake("row_max", "this is the smallest element of each row: take `tl.max`.")
def takes_the_smallest(x):
    return x.amin(1)


@mistake("row_max", "this is the largest magnitude of each row: a sign is lost.")
def takes_magnitudes(x):
    return x.abs().amax(1)


# Log-softmax


@mistake("log_softmax", "the logarithm is missing: these are the weights of softmax.")
def forgets_the_logarithm(x):
    return x.softmax(1)


@mistake(
    "log_softmax",
    "the logarithm of the sum is missing: only the maximum is subtracted.",
)
def subtracts_the_maximum_alone(x):
    return x - x.amax(1, keepdim=True)


@mistake("log_softmax", "the sum is subtracted: subtract its logarithm.")
def subtracts_the_sum(x):
    shifted = x - x.amax(1, keepdim=True)
    return shifted - shifted.exp().sum(1, keepdim=True)


@mistake("log_softmax", "the logarithm has base 2: `tl.log` is the natural one.")
def takes_base_2(x):
    shifted = x - x.amax(1, keepdim=True)
    return shifted - shifted.exp().sum(1, keepdim=True).log2()


@mistake(
    "log_softmax",
    "the logarithm of the shifted sum is subtracted from `x` itself: subtract it from what "
    "was shifted.",
)
def forgets_the_shift(x):
    return x - (x - x.amax(1, keepdim=True)).exp().sum(1, keepdim=True).log()


# Causal softmax


def seen(x, ahead=0):
    return torch.ones(x.shape, dtype=torch.bool, device=x.device).tril(ahead)


def weights(x, seen):
    """Return the softmax of what is seen in each row, 0 in the rest of it."""
    return x.masked_fill(~seen, -INF).softmax(1).nan_to_num(0)


@mistake(
    "causal_softmax",
    "elements ahead of the diagonal count: row i sees columns 0 to i and no others.",
)
def looks_ahead(x):
    return x.softmax(1)


@mistake("causal_softmax", "a row does not see its own column: `<=`, not `<`.")
def does_not_see_itself(x):
    return weights(x, seen(x, -1))


@mistake("causal_softmax", "a row sees one column too many: i + 1 is ahead of row i.")
def sees_one_too_many(x):
    return weights(x, seen(x, 1))


@mistake(
    "causal_softmax", "the comparison is the wrong way round: rows see what is ahead."
)
def sees_what_is_ahead(x):
    return weights(x, ~seen(x, -1))


@mistake(
    "causal_softmax",
    "the columns of a tile of {block} rows are reduced: `tl.max` and `tl.sum` must run "
    "along axis 1, so that each row has a maximum and a sum of its own.",
)
def reduces_the_columns(x, block):
    shown = x.masked_fill(~seen(x), -INF)
    return torch.cat([tile.softmax(0).nan_to_num(0) for tile in shown.split(block)])


@mistake(
    "causal_softmax",
    "a tile of {block} rows has one sum: `tl.sum(…, 1)` gives each row its own.",
)
def sums_a_whole_tile(x, block):
    shown = x.masked_fill(~seen(x), -INF)
    powers = (shown - shown.amax(1, keepdim=True)).exp()
    return torch.cat([tile / tile.sum() for tile in powers.split(block)])


# Log-sum-exp


def in_blocks(x, block, corrects):
    """Return m and s of each row, with or without the correction of s."""
    top = torch.full_like(x[:, 0], -INF)
    total = torch.zeros_like(top)
    for part in x.split(block, 1):
        new_top = torch.maximum(top, part.amax(1))
        factor = (top - new_top).exp() if corrects else 1.0
        total = total * factor + (part - new_top[:, None]).exp().sum(1)
        top = new_top
    return top, total


@mistake(
    "log_sum_exp",
    "the sum is not corrected when a block of {block} brings a larger maximum: multiply it "
    "by `tl.exp(top - new_top)`.",
)
def never_corrects_the_sum(x, block):
    top, total = in_blocks(x, block, corrects=False)
    return top + total.log()


@mistake(
    "log_sum_exp", "the maximum is missing: add `top` to the logarithm of the sum."
)
def forgets_the_maximum(x):
    return torch.logsumexp(x, 1) - x.amax(1)


@mistake(
    "log_sum_exp", "this is the maximum alone: the logarithm of the sum is missing."
)
def gives_the_maximum(x):
    return x.amax(1)


@mistake("log_sum_exp", "the logarithm has base 2: `tl.log` is the natural one.")
def takes_the_logarithm_to_base_2(x):
    top = x.amax(1)
    return top + (torch.logsumexp(x, 1) - top) * LOG2_E


@mistake("log_sum_exp", "the sum is added to the maximum: add its logarithm.")
def forgets_to_take_the_logarithm(x):
    top = x.amax(1)
    return top + (x - top[:, None]).exp().sum(1)


# Cross-entropy


@mistake("cross_entropy", "the score of the right word is missing: subtract it.")
def forgets_the_score(x, target):
    return torch.logsumexp(x, 1)


@mistake(
    "cross_entropy",
    "the score of the right word is that of row 0 in every row: add `row * stride_xm` to "
    "its pointer.",
)
def takes_the_score_from_row_0(x, target):
    return torch.logsumexp(x, 1) - x[0, target]


@mistake(
    "cross_entropy", "every row has the right word of row 0: load `target_ptr + row`."
)
def takes_the_word_of_row_0(x, target):
    return torch.logsumexp(x, 1) - x[:, target[0]]


@mistake("cross_entropy", "the loss has the wrong sign.")
def turns_the_sign_round(x, target):
    return x.gather(1, target[:, None])[:, 0] - torch.logsumexp(x, 1)


@mistake(
    "cross_entropy", "the maximum is missing: add `top` to the logarithm of the sum."
)
def forgets_the_maximum_of_the_row(x, target):
    return torch.logsumexp(x, 1) - x.amax(1) - x.gather(1, target[:, None])[:, 0]


@mistake(
    "cross_entropy",
    "the sum is not corrected when a block of {block} brings a larger maximum: multiply it "
    "by `tl.exp(top - new_top)`.",
)
def never_corrects_the_sum_of_powers(x, target, block):
    top, total = in_blocks(x, block, corrects=False)
    return top + total.log() - x.gather(1, target[:, None])[:, 0]
