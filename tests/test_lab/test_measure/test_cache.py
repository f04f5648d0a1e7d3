"""The model of a cache, on cases small enough to count by hand."""

from lab.measure.cache import fetched, grouped, in_step


def test_orders():
    assert grouped(2, 3) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert grouped(3, 2, 2) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    assert sorted(grouped(7, 5, 3)) == grouped(7, 5)


def test_programs_go_along_k_side_by_side():
    asked = list(in_step([(0, 0), (0, 1), (1, 0)], steps=2, programs=2, a_bytes=1, b_bytes=2))
    assert [block for block, _ in asked[:4]] == [("a", 0, 0), ("b", 0, 0), ("a", 0, 0), ("b", 0, 1)]
    assert [block for block, _ in asked[8:]] == [("a", 1, 0), ("b", 0, 0), ("a", 1, 1), ("b", 1, 0)]
    assert sum(size for _, size in asked) == 3 * 2 * (1 + 2)


def test_the_cache_keeps_what_was_used_last():
    blocks = [(name, 10) for name in "abacab"]
    assert fetched(blocks, 30) == (60, 30)
    assert fetched(blocks, 20) == (60, 40)  # c pushes b out, which was used before a
    assert fetched(blocks, 0) == (60, 60)


def test_grouping_spares_memory():
    asked, by_rows = fetched(in_step(grouped(16, 16), 4, 16, 1, 1), 64)
    _, by_groups = fetched(in_step(grouped(16, 16, 4), 4, 16, 1, 1), 64)
    assert (asked, by_rows, by_groups) == (2048, 1088, 320)  # in groups, a wave shares 4 rows and 4 columns of tiles
