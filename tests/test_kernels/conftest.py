"""Where there is a GPU, every kernel test runs on it and carries the marker `gpu`."""

import re

import pytest

from lab.device import ON_CPU

INSTRUCTION = re.compile(r"\*/ +(?:@!?U?P\d+ +)?(?P<name>[A-Z][\w.]*) *(?P<operands>.*)")


def pytest_collection_modifyitems(items):
    if not ON_CPU:
        for item in items:
            if "test_kernels" in item.path.parts:
                item.add_marker(pytest.mark.gpu)


@pytest.fixture
def overwritten():
    """The function that returns what in some SASS writes to registers that the tensor cores may still read.

    A product of warps (HGMMA) that has its left factor in registers reads them while other instructions run, and the
    hardware does not stop these from writing there: the compiler must not, until it has waited for that product.
    """
    return find_overwritten


def find_overwritten(sass: str) -> list[str]:
    found, begun, under_way = [], set(), []  # registers of the products begun, by the groups that are waited for
    for line in sass.splitlines():
        if not (instruction := INSTRUCTION.search(line)):
            continue
        name, operands = instruction["name"], instruction["operands"]
        if name.startswith("HGMMA"):
            if left := re.match(r"R\d+, R(\d+), gdesc", operands):
                begun |= set(range(int(left[1]), int(left[1]) + 4))
            if "gsb0" in operands:
                under_way.append(begun)
                begun = set()
        elif name.startswith("WARPGROUP.DEPBAR"):
            left = int(re.search(r"gsb0, (\w+)", operands)[1], 16)
            under_way = under_way[max(len(under_way) - left, 0) :]
        else:
            read = begun.union(*under_way)
            if read & written(name, operands) or (name == "BRA" and backwards(line, operands, sass) and read):
                found.append(line.strip())
    return found


def written(name: str, operands: str) -> set[int]:
    """Return the registers that an instruction writes."""
    target = re.match(r"(?:P\d+, )?R(\d+)", operands)
    if not target or name.startswith(("ST", "RED")):
        return set()
    wide = 4 if ".128" in name else 2 if re.search(r"\.64|\.WIDE|^CS2R", name) else 1
    return set(range(int(target[1]), int(target[1]) + wide))


def backwards(line: str, operands: str, sass: str) -> bool:
    """Return whether a branch ends a turn of a loop: no product that has registers to read may be under way there."""
    label = re.search(r"\.L_x_\d+", operands)
    return bool(label) and f"\n{label[0]}:" in sass[: sass.index(line)]
