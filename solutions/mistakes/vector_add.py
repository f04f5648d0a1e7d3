"""What answers to the tasks of `solutions/vector_add.py` give that make a known mistake."""

from lab.task import mistake


@mistake("scale_add", "`alpha` multiplies `y` as well: it belongs to `x` alone.")
def scales_the_sum(x, y, alpha):
    return alpha * (x + y)


@mistake("scale_add", "`alpha` is added to `x`: it must multiply it.")
def adds_alpha(x, y, alpha):
    return alpha + x + y


@mistake("clamped_add", "`x` is limited before `y` is added: limit the sum.")
def clamps_x(x, y, low, high):
    return x.clamp(low, high) + y


@mistake("clamped_add", "the two numbers are limited each: limit their sum.")
def clamps_both(x, y, low, high):
    return x.clamp(low, high) + y.clamp(low, high)


@mistake(
    "row_add", "`row` is added down the columns: `row[None, :]` lays it along a row."
)
def adds_a_column(x, row):
    return x + row[: x.shape[0], None]
