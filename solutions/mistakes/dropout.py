"""What answers to the tasks of `solutions/dropout.py` give that make a known mistake."""

import torch

from lab.task import mistake
from solutions.dropout import first_words, philox_reference, uniform

# Apply a mask


@mistake("masked_scale", "what stays is not divided by `1 - p`.")
def does_not_scale(x, keep, p):
    return torch.where(keep, x, 0)


@mistake("masked_scale", "what stays is multiplied by `1 - p`: divide by it.")
def multiplies(x, keep, p):
    return torch.where(keep, x * (1 - p), 0)


@mistake("masked_scale", "what stays is divided by `p`: divide by `1 - p`.")
def divides_by_p(x, keep, p):
    return torch.where(keep, x / p, 0)


@mistake("masked_scale", "`keep` is used the wrong way round: what should stay is 0.")
def drops_what_stays(x, keep, p):
    return torch.where(keep, 0, x / (1 - p))


# Toss a coin for each sign


def signs(x, words):
    return torch.where(words % 2 == 1, -x, x)


@mistake(
    "random_sign", "the signs change where the integer is even: odd ones change it."
)
def changes_at_even_words(x, seed):
    return torch.where(first_words(x.numel(), seed, x.device) % 2 == 1, x, -x)


@mistake(
    "random_sign",
    "no sign changes: the integers go from 0 to 2**32 - 1 and none is negative. Odd ones "
    "change the sign.",
)
def changes_nothing(x, seed):
    return x


@mistake(
    "random_sign",
    "every program draws the same numbers, those of 0 to {block} - 1: an element's own "
    "number needs its own counter, `offs`, and not its lane.",
)
def draws_for_lanes(x, seed, block):
    words = first_words(block, seed, x.device)
    return signs(x, words[torch.arange(x.numel(), device=x.device) % block])


@mistake(
    "random_sign",
    "a program of {block} elements draws one number for them all: each element needs a "
    "counter of its own, `offs`.",
)
def draws_for_programs(x, seed, block):
    words = first_words(-(-x.numel() // block), seed, x.device)
    return signs(x, words[torch.arange(x.numel(), device=x.device) // block])


# Drop whole rows


def kept(x, p, seed, counters):
    """Return x / (1 - p) where the number of a counter is at least p, and 0 elsewhere."""
    words = first_words(int(counters.max()) + 1, seed, x.device)[counters]
    return torch.where(uniform(words) >= p, x / (1 - p), 0)


def counters(x, rows=True):
    """Return the number of its row, or of its column, for each element of a matrix."""
    M, N = x.shape
    numbers = torch.arange(M if rows else N, device=x.device)
    return (numbers[:, None] if rows else numbers[None, :]).expand(M, N)


@mistake(
    "drop_rows",
    "single elements are dropped: a row needs one number, that of its row, `offs_m`.",
)
def drops_elements(x, p, seed):
    return kept(x, p, seed, torch.arange(x.numel(), device=x.device).view(x.shape))


@mistake("drop_rows", "columns are dropped: the counter is the row's number, `offs_m`.")
def drops_columns(x, p, seed):
    return kept(x, p, seed, counters(x, rows=False))


@mistake(
    "drop_rows",
    "rows are counted from the top of a tile of {block} rows: the counter is the row's "
    "number in the whole matrix, `offs_m`.",
)
def counts_from_the_top_of_a_tile(x, p, seed, block):
    return kept(x, p, seed, counters(x) % block)


@mistake("drop_rows", "the rows that should stay are dropped: a row stays from `p` on.")
def drops_the_other_rows(x, p, seed):
    keep = uniform(first_words(x.shape[0], seed, x.device)) < p
    return torch.where(keep[:, None], x / (1 - p), 0)


@mistake("drop_rows", "what stays is not divided by `1 - p`.")
def does_not_scale_rows(x, p, seed):
    keep = uniform(first_words(x.shape[0], seed, x.device)) >= p
    return torch.where(keep[:, None], x, 0)


# Round by chance


def drawn(x, seed):
    """Return the four numbers of each call, [calls, 4]."""
    calls = torch.arange(-(-x.numel() // 4), device=x.device)
    return uniform(philox_reference(seed, calls))


def rounded(x, u):
    return torch.floor(x.float() + u.flatten()[: x.numel()]).to(torch.int32)


@mistake(
    "chance_round",
    "the second and the third number of each call have changed places: `tl.join` puts its "
    "two blocks side by side, so join 0 with 2 and 1 with 3 first.",
)
def joins_in_pairs(x, seed):
    return rounded(x, drawn(x, seed)[:, [0, 2, 1, 3]])


@mistake("chance_round", "the first number of a call is used for all four elements.")
def uses_the_first_number(x, seed):
    return rounded(x, drawn(x, seed)[:, :1].expand(-1, 4))


@mistake(
    "chance_round",
    "every element is rounded to the nearest integer: add the random number, not 0.5.",
)
def rounds_to_nearest(x, seed):
    return rounded(x, torch.full_like(x, 0.5, dtype=torch.float32))


@mistake(
    "chance_round",
    "the sum is cut towards 0, and negative ones must go down: take `tl.floor` first.",
)
def cuts_towards_zero(x, seed):
    u = drawn(x, seed).flatten()[: x.numel()]
    return (x.float() + u).to(torch.int32)


@mistake(
    "chance_round", "each element has a call of its own: one call gives four numbers."
)
def calls_for_every_element(x, seed):
    return rounded(x, uniform(first_words(x.numel(), seed, x.device)))


# Dropout and a residual


def keeps(x, p, seed):
    return uniform(first_words(x.numel(), seed, x.device)) >= p


@mistake(
    "dropout_add", "`residual` is dropped with `x`: add it to what the choice gives."
)
def drops_the_residual(x, residual, p, seed):
    return torch.where(keeps(x, p, seed), residual + x / max(1 - p, 1e-9), 0)


@mistake("dropout_add", "what stays is not divided by `1 - p`.")
def does_not_scale_x(x, residual, p, seed):
    return residual + torch.where(keeps(x, p, seed), x, 0)


@mistake(
    "dropout_add", "`residual` is divided by `1 - p` with `x`: only `x` is scaled."
)
def scales_the_residual(x, residual, p, seed):
    return (residual + torch.where(keeps(x, p, seed), x, 0)) / max(1 - p, 1e-9)


@mistake(
    "dropout_add", "the elements that should stay are dropped: one stays from `p` on."
)
def drops_the_others(x, residual, p, seed):
    return residual + torch.where(keeps(x, p, seed), 0, x / max(1 - p, 1e-9))
