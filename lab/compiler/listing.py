"""Compiler output made readable: IR and assembly without line tables and declarations, and names of instructions."""

import itertools
import re
from collections.abc import Iterator, Sequence


def mnemonic(line: str) -> str:
    """Return the instruction on a line of assembly, "" where there is none."""
    return re.sub(r"^\s*(/\*\w+\*/)?\s*(@!?%?\w+\s+)?", "", line).split(" ")[0].split("\t")[0].rstrip(";")


def contains_in_order(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    remaining = iter(parts)
    return all(part in remaining for part in wanted)


# Lines that say nothing about the work: comments, declarations, line tables.
NOISE = re.compile(
    r"\s*(//.*|;.*|#loc.*|![0-9].*|attributes .*|declare .*|source_filename.*|target .*|NOP|[{})]?;?"
    r"|\.(loc|file|section|sectionflags|reg|param|globl|global|type|size|align|p2align|headerflags|elftype|other)\b.*"
    r"|\.(version|target|address_size|reqntid|maxntid|maxnreg|minnctapersm|amdgcn\w*|amdhsa\w*|text|cfi\w*)\b.*)"
)
END = re.compile(r"\s*(\.section\s+\.(debug|AMDGPU)|// -- End function|\.Lfunc_end|\$L__func_end)")
SHORTER = tuple(
    (re.compile(pattern), shorter)
    for pattern, shorter in (
        (r"\s*loc\((?:#\w+|unknown|\"[^\"]*\"(?:\([^)]*\))?)\)", ""),
        (r",? !dbg !\d+", ""),
        (r"^\s*/\*\w{4,}\*/\s*", "    "),  # the address of a SASS instruction
        (r"\s*//.*$|\s+;\s.*$|\s;$", ""),
        (r"tt\.divisibility = (\d+) : i32", r"divisible by \1"),
        (r", tt\.pointer_range = 32 : i32", ""),
        (r" attributes \{noinline = false\}", ""),
        (r"\{ ?(%\w+), (?:%\w+, )+(%\w+) ?\}", r"{\1…\2}"),
        (r"\{ (%\w+) \}", r"\1"),
        (r"\[ ?(%\w+) \+ 0 ?\]", r"[\1]"),
        (r"\[ (.*?) \]", r"[\1]"),
        (r"\{ (.*?) \}", r"{\1}"),
    )
)
LABEL = re.compile(r"^([$.\w]+):$")
FLOW = re.compile(r"\b(bra|BRA|s_c?branch\w*)\b")
LONGEST = 120  # characters of a line in an excerpt


def readable_lines(text: str) -> Iterator[str]:
    """Yield the lines of a stage that are about the kernel, shortened; of the labels, those that something jumps to."""
    text = re.sub(r"^\.(L_x_\d+):\n.*BRA `\(\.\1\).*\n", "", text, flags=re.MULTILINE)  # a stop behind the last EXIT
    jumps = " ".join(line for line in text.splitlines() if FLOW.search(line))
    is_ir = text.lstrip().startswith(("#", "module"))
    for line in text.splitlines():
        if END.match(line):
            return
        for pattern, shorter in SHORTER:
            line = pattern.sub(shorter, line)
        label = LABEL.match(line)
        if label and not re.search(re.escape(label[1]) + r"\b", jumps):
            continue
        if line.strip() and (not NOISE.fullmatch(line) or (is_ir and line.strip() == "}")):
            line = re.sub(r"^\t", "    ", line.rstrip()).replace("\t", " ")
            yield line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def keep_lines(lines: Sequence[str], words: Sequence[str]) -> Iterator[str]:
    """Yield the lines with one of the words, labels and branches.

    Of more than four in a row that differ in their operands alone, the first comes with a count of the others.
    """
    kept = (line for line in lines if any(word in line for word in words) or FLOW.search(line) or LABEL.match(line))
    for name, group in itertools.groupby(kept, mnemonic):
        alike = list(group)
        yield from alike if len(alike) <= 4 else (alike[0], f"    … and {len(alike) - 1} more {name}")
