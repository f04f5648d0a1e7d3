"""What answers to the tasks of `solutions/attention.py` give that make a known mistake."""

import torch

from lab.task import mistake

INF = float("inf")
LOG2_E = 1.4426950408889634


# Weighted mean


def online(x, v, block, corrects_total=True, corrects_acc=True, divides=False):
    """Return the sum of powers times values and the sum of powers, block by block."""
    top = torch.full_like(x[:, 0], -INF)
    total, acc = torch.zeros_like(top), torch.zeros_like(top)
    for part, values in zip(x.split(block, 1), v.split(block), strict=True):
        new_top = torch.maximum(top, part.amax(1))
        factor, powers = (top - new_top).exp(), (part - new_top[:, None]).exp()
        total = total * (factor if corrects_total else 1) + powers.sum(1)
        acc = acc * (factor if corrects_acc else 1) + powers @ values
        acc = acc / total if divides else acc
        top = new_top
    return acc, total


@mistake(
    "weighted_mean",
    "`acc` is not corrected when a block of {block} brings a larger maximum: the factor "
    "puts both sums right.",
)
def corrects_the_sum_alone(x, v, block):
    acc, total = online(x, v, block, corrects_acc=False)
    return acc / total


@mistake(
    "weighted_mean",
    "`total` is not corrected when a block of {block} brings a larger maximum: the factor "
    "puts both sums right.",
)
def corrects_the_values_alone(x, v, block):
    acc, total = online(x, v, block, corrects_total=False)
    return acc / total


@mistake(
    "weighted_mean",
    "neither sum is corrected when a block of {block} brings a larger maximum: multiply "
    "both by the factor.",
)
def corrects_nothing(x, v, block):
    acc, total = online(x, v, block, corrects_total=False, corrects_acc=False)
    return acc / total


@mistake("weighted_mean", "the sum is never divided by `total`.")
def never_divides(x, v):
    return (x - x.amax(1, keepdim=True)).exp() @ v


@mistake(
    "weighted_mean",
    "`acc` is divided in every step of {block}, and once more at the end: divide once, "
    "after the loop.",
)
def divides_in_every_step_and_after(x, v, block):
    acc, total = online(x, v, block, divides=True)
    return acc / total


@mistake(
    "weighted_mean",
    "`acc` is divided in every step of {block}: divide once, after the loop.",
)
def divides_in_every_step(x, v, block):
    return online(x, v, block, divides=True)[0]


@mistake("weighted_mean", "this is the sum of the powers: multiply them by `v`.")
def forgets_the_values(x, v):
    return (x - x.amax(1, keepdim=True)).exp().sum(1)


# Causal attention


def scores(q, k):
    return q @ k.mT / q.shape[-1] ** 0.5


def positions(q, k):
    """Return the number of each query, as a column, and of each key, as a row."""
    queries = torch.arange(q.shape[-2], device=q.device)
    return queries[:, None], torch.arange(k.shape[-2], device=q.device)[None, :]


def attended(scores, v, seen):
    """Return the mean of the values that are seen; a row that sees nothing is 0.

    A value that no query sees is left out, for it may be NaN.
    """
    weights = torch.softmax(scores.masked_fill(~seen, -INF), -1).nan_to_num(0)
    return weights @ v.where(seen.any(0)[:, None], 0)


@mistake(
    "causal_attention",
    "queries see every key: elements ahead of the diagonal must not count.",
)
def looks_ahead(q, k, v):
    return torch.softmax(scores(q, k), -1) @ v


@mistake(
    "causal_attention",
    "queries see every key that their program of {block} queries visits: `seen` must hide "
    "what is ahead of each query.",
)
def looks_ahead_within_the_tile(q, k, v, block):
    i, j = positions(q, k)
    end = i // block * block + block + len(k) - len(q)
    return attended(scores(q, k), v, j < -(-end // block) * block)


@mistake(
    "causal_attention",
    "queries are counted from the first key: the last query belongs to the last key, so "
    "query i sees keys up to i + N - M.",
)
def counts_from_the_top_left(q, k, v):
    i, j = positions(q, k)
    return attended(scores(q, k), v, j <= i)


@mistake(
    "causal_attention",
    "queries are counted from the first key, in tiles of {block}: the last query belongs "
    "to the last key, so query i sees keys up to i + N - M.",
)
def counts_from_the_top_left_to_the_end(q, k, v, block):
    i, j = positions(q, k)
    end = i // block * block + block + len(k) - len(q)
    return attended(scores(q, k), v, (j <= i) & (j < -(-end // block) * block))


@mistake("causal_attention", "a query does not see its own key: `<=`, not `<`.")
def does_not_see_its_own_key(q, k, v):
    i, j = positions(q, k)
    return attended(scores(q, k), v, j < i + len(k) - len(q))


@mistake("causal_attention", "a query sees one key too many.")
def sees_one_key_too_many(q, k, v):
    i, j = positions(q, k)
    return attended(scores(q, k), v, j <= i + len(k) - len(q) + 1)


@mistake(
    "causal_attention",
    "the loop ends before the diagonal, in tiles of {block}: the last query of a program, "
    "`first + BLOCK_M - 1`, sees furthest.",
)
def stops_before_the_diagonal(q, k, v, block):
    i, j = positions(q, k)
    end = (i // block * block + len(k) - len(q)).clamp(min=0)
    seen = (j <= i + len(k) - len(q)) & (j < -(-end // block) * block)
    return attended(scores(q, k), v, seen)


@mistake(
    "causal_attention",
    "the comparison is the wrong way round: queries see what is ahead of them.",
)
def sees_what_is_ahead(q, k, v, block):
    i, j = positions(q, k)
    end = i // block * block + block + len(k) - len(q)
    seen = (j >= i + len(k) - len(q)) & (j < -(-end // block) * block)
    return attended(scores(q, k), v, seen)


@mistake(
    "causal_attention", "the scores are not divided by the root of D: use `scale`."
)
def forgets_the_scale(q, k, v):
    i, j = positions(q, k)
    return attended(q @ k.mT, v, j <= i + len(k) - len(q))


@mistake("causal_attention", "the scores are scaled twice.")
def scales_twice(q, k, v):
    i, j = positions(q, k)
    seen = j <= i + len(k) - len(q)
    return attended(scores(q, k) / q.shape[-1] ** 0.5, v, seen)


@mistake(
    "causal_attention", "the scores are multiplied by the root of D: divide by it."
)
def multiplies_by_the_root(q, k, v):
    i, j = positions(q, k)
    return attended(scores(q, k) * q.shape[-1], v, j <= i + len(k) - len(q))


# Log-sum-exp


def scaled_otherwise(factor):
    """Return attention and its log-sum-exp, the scores times a factor."""

    def formula(q, k, v):
        x = scores(q, k) * factor(q.shape[-1])
        return torch.softmax(x, 1) @ v, torch.logsumexp(x, 1)

    return formula


@mistake("attention_lse", "the scores are not divided by the root of D: use `scale`.")
def forgets_the_scale_of_the_lse(q, k, v):
    return scaled_otherwise(lambda D: D**0.5)(q, k, v)


@mistake("attention_lse", "the scores are scaled twice.")
def scales_the_lse_twice(q, k, v):
    return scaled_otherwise(lambda D: D**-0.5)(q, k, v)


@mistake("attention_lse", "the scores are multiplied by the root of D: divide by it.")
def multiplies_the_lse_by_the_root(q, k, v):
    return scaled_otherwise(lambda D: D)(q, k, v)


def lse_with(change):
    """Return attention, and what `change` makes of the maxima and the sums of powers."""

    def formula(q, k, v):
        x = scores(q, k)
        top = x.amax(1)
        total = (x - top[:, None]).exp().sum(1)
        return torch.softmax(x, 1) @ v, change(top, total)

    return formula


@mistake(
    "attention_lse", "the maximum is missing: add `top` to the logarithm of the sum."
)
def forgets_the_maximum(q, k, v):
    return lse_with(lambda top, total: total.log())(q, k, v)


@mistake(
    "attention_lse", "this is the maximum alone: the logarithm of `total` is missing."
)
def keeps_the_maximum_alone(q, k, v):
    return lse_with(lambda top, total: top)(q, k, v)


@mistake("attention_lse", "the logarithm has base 2: `tl.log` is the natural one.")
def mixes_two_bases(q, k, v):
    return lse_with(lambda top, total: top + total.log2())(q, k, v)


@mistake("attention_lse", "the sum is added to the maximum: add its logarithm.")
def adds_the_sum(q, k, v):
    return lse_with(lambda top, total: top + total)(q, k, v)


@mistake("attention_lse", "the maximum is subtracted: add it.")
def subtracts_the_maximum(q, k, v):
    return lse_with(lambda top, total: total.log() - top)(q, k, v)


@mistake(
    "attention_lse", "this is the sum of the powers: take its logarithm and add `top`."
)
def gives_the_sum(q, k, v):
    return lse_with(lambda top, total: total)(q, k, v)


# Sliding window


@mistake(
    "window_attention", "the window has one key too many: query i sees `window` keys."
)
def sees_one_too_many_in_the_window(q, k, v, window):
    i, j = positions(q, k)
    return attended(scores(q, k), v, (j <= i) & (i - j <= window))


@mistake(
    "window_attention", "the window has one key too few: query i sees `window` keys."
)
def sees_one_too_few_in_the_window(q, k, v, window):
    i, j = positions(q, k)
    return attended(scores(q, k), v, (j <= i) & (i - j < window - 1))


@mistake("window_attention", "keys before the window count: `seen` has no lower end.")
def masks_the_future_alone(q, k, v, window):
    i, j = positions(q, k)
    return attended(scores(q, k), v, j <= i)


def first_of_tile(i, window, block):
    """Return the first key of the first tile that the program of a query visits."""
    return (i // block * block - window + 1).clamp(min=0) // block * block


@mistake(
    "window_attention",
    "keys before the window count, those of the first tile of {block}: `seen` has no lower "
    "end.",
)
def masks_the_future_alone_within_tiles(q, k, v, window, block):
    i, j = positions(q, k)
    seen = (j <= i) & (j >= first_of_tile(i, window, block))
    return attended(scores(q, k), v, seen)


@mistake(
    "window_attention",
    "keys ahead of the query count, to the end of its tile of {block}: `seen` has no upper "
    "end.",
)
def masks_the_past_alone(q, k, v, window, block):
    i, j = positions(q, k)
    seen = (j < i // block * block + block) & (i - j < window)
    return attended(scores(q, k), v, seen)


@mistake("window_attention", "a query does not see its own key.")
def does_not_see_itself(q, k, v, window):
    i, j = positions(q, k)
    return attended(scores(q, k), v, (j < i) & (i - j < window))


@mistake(
    "window_attention",
    "the loop begins one tile of {block} late: the first query of a program looks back "
    "furthest, so round the beginning down.",
)
def begins_a_tile_late(q, k, v, window, block):
    i, j = positions(q, k)
    first = i // block * block
    begin = torch.minimum(first_of_tile(i, window, block) + block, first)
    return attended(scores(q, k), v, (j <= i) & (i - j < window) & (j >= begin))


@mistake(
    "window_attention", "the scores are not divided by the root of D: use `scale`."
)
def forgets_the_scale_of_the_window(q, k, v, window):
    i, j = positions(q, k)
    return attended(q @ k.mT, v, (j <= i) & (i - j < window))


@mistake("window_attention", "the scores are scaled twice.")
def scales_the_window_twice(q, k, v, window):
    i, j = positions(q, k)
    x = scores(q, k) / q.shape[-1] ** 0.5
    return attended(x, v, (j <= i) & (i - j < window))


@mistake(
    "window_attention", "the scores are multiplied by the root of D: divide by it."
)
def multiplies_the_window_by_the_root(q, k, v, window):
    i, j = positions(q, k)
    return attended(scores(q, k) * q.shape[-1], v, (j <= i) & (i - j < window))


# Softcap


def capped(q, k, v, cap, scale=1.0):
    x = scale * scores(q, k)
    return torch.softmax(cap * torch.tanh(x / cap), -1) @ v


@mistake("softcap_attention", "the scores are not capped.")
def caps_nothing(q, k, v, cap):
    return torch.softmax(scores(q, k), -1) @ v


@mistake(
    "softcap_attention", "the scores are capped before they are scaled: scale first."
)
def caps_before_it_scales(q, k, v, cap):
    root = q.shape[-1] ** 0.5
    return torch.softmax(cap * torch.tanh(q @ k.mT / cap) / root, -1) @ v


@mistake(
    "softcap_attention",
    "keys past the end count, in tiles of {block}: cap first, and give what does not exist "
    "−inf after that, for the cap lifts −inf to −cap.",
)
def lifts_minus_infinity(q, k, v, cap, block):
    x = cap * torch.tanh(scores(q, k) / cap)
    more = -k.shape[1] % block
    padded = torch.cat([x, x.new_full((*x.shape[:2], more), -cap)], -1)
    return torch.softmax(padded, -1)[..., : k.shape[1]] @ v


@mistake("softcap_attention", "scores are cut off at the cap: the task asks for tanh.")
def cuts_scores_off(q, k, v, cap):
    return torch.softmax(scores(q, k).clamp(-cap, cap), -1) @ v


@mistake("softcap_attention", "scores are capped at 1: multiply the tanh by `cap`.")
def caps_at_one(q, k, v, cap):
    return torch.softmax(torch.tanh(scores(q, k) / cap), -1) @ v


@mistake(
    "softcap_attention", "the scores are not divided by the root of D: use `scale`."
)
def forgets_the_scale_of_the_cap(q, k, v, cap):
    return capped(q, k, v, cap, q.shape[-1] ** 0.5)


@mistake("softcap_attention", "the scores are scaled twice.")
def scales_the_cap_twice(q, k, v, cap):
    return capped(q, k, v, cap, q.shape[-1] ** -0.5)


@mistake(
    "softcap_attention", "the scores are multiplied by the root of D: divide by it."
)
def multiplies_the_cap_by_the_root(q, k, v, cap):
    return capped(q, k, v, cap, q.shape[-1])


@mistake(
    "softcap_attention",
    "the sigmoid is taken of the score and not of twice it: tanh y = 2 sigmoid(2y) - 1.",
)
def halves_the_score(q, k, v, cap):
    x = scores(q, k)
    return torch.softmax(cap * torch.tanh(x / cap / 2), -1) @ v
