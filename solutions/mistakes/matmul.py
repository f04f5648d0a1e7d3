"""What answers to the tasks of `solutions/matmul.py` give that make a known mistake."""

import torch

from lab.task import drawing, mistake
from solutions.matmul import tile_order_reference

# A matrix times a vector


@mistake(
    "matvec",
    "the products are summed down the columns of each block: every row needs a sum of its "
    "own, which runs along axis 1.",
)
def sums_down_the_columns(a, x, block):
    """With as many rows in a block as columns; other blocks do not compile."""
    (M, K), out = a.shape, []
    for first in range(0, M, block):
        rows = a[first : first + block]
        sums = torch.zeros(block, dtype=a.dtype, device=a.device)
        for k in range(0, K, block):
            part = (rows[:, k : k + block] * x[k : k + block]).sum(0)
            sums[: len(part)] += part
        out.append(sums[: len(rows)])
    return torch.cat(out)


@mistake(
    "matvec", "`x` is summed by itself: each row of `a` must be multiplied with it."
)
def sums_x(a, x):
    return x.sum().expand(a.shape[0])


# The order of tiles


def tiles_in_order(tiles, device):
    return torch.tensor(list(tiles), dtype=torch.int32, device=device).reshape(-1, 2)


def grouped(shape, rows_of_group, group, size_of_group):
    """Return tile by tile what the formulas of the task give for other numbers in them."""
    for tile in range(shape[0] * shape[1]):
        first = tile // size_of_group * group
        rows = rows_of_group(first)
        place = tile % size_of_group
        yield first + place % rows, place // rows


@mistake("tile_order", "tiles are numbered row by row, without groups.")
def goes_row_by_row(shape, group, device):
    tiles_m, tiles_n = shape
    return tiles_in_order(
        ((m, n) for m in range(tiles_m) for n in range(tiles_n)), device
    )


@mistake("tile_order", "tiles are numbered column by column, without groups.")
def goes_column_by_column(shape, group, device):
    tiles_m, tiles_n = shape
    return tiles_in_order(
        ((m, n) for n in range(tiles_n) for m in range(tiles_m)), device
    )


@mistake(
    "tile_order",
    "the last group is taken for a whole one: within a group, divide by the rows that it "
    "has, `rows`, and not by `GROUP`.",
)
def divides_by_group(shape, group, device):
    tiles = grouped(shape, lambda first: group, group, group * shape[1])
    return tiles_in_order(tiles, device)


@mistake(
    "tile_order",
    "a group is taken for `GROUP * tiles_m` tiles: it has `GROUP` rows, and a row has "
    "`tiles_n` tiles.",
)
def counts_rows_for_columns(shape, group, device):
    def rows(first):
        return max(1, min(shape[0] - first, group))

    return tiles_in_order(grouped(shape, rows, group, group * shape[0]), device)


@mistake("tile_order", "row and column have changed places.")
def swaps_row_and_column(shape, group, device):
    def rows(first):
        return min(shape[0] - first, group)

    tiles = grouped(shape, rows, group, group * shape[1])
    return tiles_in_order(((n, m) for m, n in tiles), device)


@mistake(
    "tile_order",
    "within a group, the programs go along a row: they go down its rows first, so the "
    "remainder is the row and the quotient the column.",
)
def goes_along_the_rows_of_a_group(shape, group, device):
    tiles_n = shape[1]
    tiles = ((tile // tiles_n, tile % tiles_n) for tile in range(shape[0] * tiles_n))
    return tiles_in_order(tiles, device)


@drawing("tile_order")
def programs_by_tile(found, shape, group, device):
    """Return which program has which tile, in the answer and as it should be."""
    right = tile_order_reference(shape, group, device)
    return (
        "The numbers of the programs, one row of tiles after the other: "
        f"{in_rows(found, shape)}; right is {in_rows(right, shape)}."
    )


def in_rows(order, shape):
    """Return "0 2 / 1 3", with "–" for a tile that has no program."""
    programs = {tuple(tile): program for program, tile in enumerate(order.tolist())}
    rows = [
        " ".join(str(programs.get((m, n), "–")) for n in range(shape[1]))
        for m in range(shape[0])
    ]
    return " / ".join(rows)


# A gated product


@mistake(
    "gated_product",
    "every step of {block} columns is gated by itself: sum both products first, and choose "
    "after the loop.",
)
def gates_every_step(a, gate, b, block):
    out = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    for k in range(0, a.shape[1], block):
        part = a[:, k : k + block]
        out += torch.relu(part @ gate[k : k + block]) * (part @ b[k : k + block])
    return out


@mistake("gated_product", "the gate is not cut at 0: `relu` is missing.")
def forgets_relu(a, gate, b):
    return (a @ gate) * (a @ b)


@mistake(
    "gated_product", "the other product is cut at 0: `relu` belongs to `a @ gate`."
)
def cuts_the_other(a, gate, b):
    return (a @ gate) * torch.relu(a @ b)


@mistake("gated_product", "the gate is 1 where it is open: multiply by its value.")
def opens_or_shuts(a, gate, b):
    return torch.where(a @ gate > 0, a @ b, 0)


@mistake("gated_product", "`relu` is taken of the product: it belongs to `a @ gate`.")
def cuts_the_product(a, gate, b):
    return torch.relu((a @ gate) * (a @ b))


@mistake("gated_product", "`a @ gate` alone: it is not multiplied with `a @ b`.")
def gives_the_gate(a, gate, b):
    return torch.relu(a @ gate)
