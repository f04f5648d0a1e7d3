"""Is it the work that the task asks for, and no more? The rules, and what is said where one is broken.

The values are right by now, so what is found here is waste, or work that something else than a kernel did.
"""

from typing import TYPE_CHECKING

import numpy as np

from lab.check.finding import Finding
from lab.check.question import Question
from lab.words import all_programs, code_at, counted, element, elements_in_words, listed, place_of, was

if TYPE_CHECKING:
    from lab.check.runner import Evidence, Result

WASTE = ("launches", "stored-twice", "read-twice", "memory", "block")  # reasons why work was not asked for
FEW = 16  # elements that a host function may hand to a kernel in memory: counters, addresses, a small table


def examine_work(question: Question, evidence: "Evidence") -> Finding | None:
    """Return which work was not asked for: done by the host function, done again, or too much of it at once."""
    for examiner in (examine_host, examine_launches, examine_times, examine_memory_used, examine_loads, examine_block):
        finding = examiner(question, evidence)
        if finding is not None:
            return finding
    return None


def examine_host(question: Question, evidence: "Evidence") -> Finding | None:
    """Return what the host function worked out: elements that no kernel loaded, or memory that it filled itself."""
    names = [
        question.name(loads["position"])
        for loads in evidence.loads
        if loads["position"] in question.decisive and not loads["loaded"] and not loads["by_torch"]
    ]
    cause = "a kernel must load the inputs and work on them; the host function checks, allocates, launches and returns."
    if names:
        message = f"no kernel loaded {listed([f'`{name}`' for name in names])}, and yet the result follows from it."
        return Finding("host", message, cause)
    for use in evidence.memory:
        if use["use"] == "made" and use["elements"] > FEW:
            return Finding(
                "host",
                f"a kernel loads {counted(use['elements'], 'element')} from {memory_named(use)} that the host function "
                f"put there, {at(use)}.",
                cause,
            )
    return None


def examine_launches(question: Question, evidence: "Evidence") -> Finding | None:
    """Return how many kernels were launched, where they are too many."""
    launches = [launch for launch in evidence.launches if launch["programs"]]
    allowed = question.task.launches
    if allowed is None or len(launches) <= allowed:
        return None
    names = [f"`{name}`" for name in dict.fromkeys(launch["kernel"] for launch in launches)]
    what, which = (names[0], "") if len(names) == 1 else ("kernels", f" ({listed(names)})")
    cause = "let one kernel do all of it: what a launch leaves in memory, the next one has to load again."
    if len(names) == 1:
        cause = "launch once, with a grid that has a program for each part: launches run one after the other."
    message = f"the host function launched {what} {how_often(len(launches))}{which}; {how_often(allowed)} is enough."
    return Finding("launches", message, cause)


def examine_times(question: Question, evidence: "Evidence") -> Finding | None:
    """Return which elements of a result were stored more often than the task allows, and by which programs."""
    for position, result in enumerate(evidence.results, 1):
        times, allowed = result.times, question.task.stores
        if allowed is None or times is None or times.max() <= allowed:
            continue
        name = f"result {position} of {len(evidence.results)}" if question.several else "the result"
        launched = max(launch["programs"] for launch in evidence.launches)
        by_all = len(result.storers) == launched > 1 and bool((times == times.max()).all())
        message = f"{often_in_words(times, allowed, name, 'stored', result.storers, launched)}"
        message += f", at {places_in_words(result.store_lines)}."
        return Finding("stored-twice", message, cause_of_times(result, by_all))
    return None


def cause_of_times(result: "Result", by_all: bool) -> str:
    """Return why elements may have been stored several times."""
    if len(result.storers) == 1:
        return "a program stores an element once, when it is finished: keep what is not finished in a variable."
    if by_all:
        return "every program does the work of all: let each begin at its `tl.program_id`, and do its own share alone."
    return "give each element to one program: a block begins where the one before it ends, and has one program."


def examine_memory_used(question: Question, evidence: "Evidence") -> Finding | None:
    """Return which memory beside the inputs and the results was used, or that a result was read back."""
    cause = "keep it in a variable of the kernel: what goes through memory costs a store and a load."
    buffers = [use for use in evidence.memory if use["use"] == "stored" and use["elements"] > 1]
    if len(buffers) > question.task.buffers:
        use = buffers[0]
        message = f"a kernel stores {counted(use['elements'], 'element')} into {memory_named(use)}, which is no result"
        return Finding("memory", f"{message}, {at(use)}.", cause)
    back = [use for use in evidence.memory if use["use"] == "reread" and use["result"]]
    if back and question.task.stores == 1:
        use = back[0]
        message = f"a kernel loads {counted(use['elements'], 'element')} of the result that it has stored, {at(use)}."
        return Finding("memory", message, cause)
    return None


def examine_loads(question: Question, evidence: "Evidence") -> Finding | None:
    """Return which elements of an input were loaded more often than the task allows."""
    task = question.task
    for loads in evidence.loads:
        name = question.name(loads["position"])
        places = f"at {places_in_words(loads['places'])}."
        beyond, times, allowed = loads["beyond"], loads["times"], task.reads.get(name, 1)
        if name in task.shared and beyond:
            message = f"program {beyond['program']} loaded {element(beyond['element'])} of `{name}` "
            blocks = counted(beyond["blocks"], "block")
            message += f"{how_often(beyond['times'])} for {blocks} that it stored, {places}"
            return Finding("read-twice", message, "load a block once, and use it for all that needs it.")
        if name not in task.shared and times is not None and times.max() > allowed:
            launched = max(launch["programs"] for launch in evidence.launches)
            message = often_in_words(times, allowed, f"`{name}`", "loaded", loads["loaders"], launched)
            cause = "load a block once, and keep it in a variable for all that needs it."
            if len(loads["loaders"]) > 1:
                cause = "programs do the same work: give each a share of its own, and let it load that alone."
            return Finding("read-twice", f"{message}; {how_often(allowed)} is enough, {places}", cause)
    return None


def examine_block(question: Question, evidence: "Evidence") -> Finding | None:
    """Return how many elements a program took at once, where they are too many."""
    task = question.task
    for kind, verb, allowed in (("store", "stores", task.block), ("load", "loads", task.step)):
        for access in evidence.widest:
            if access["kind"] == kind and allowed is not None and access["elements"] > allowed:
                most = f"{allowed:,} is the most that it may"
                message = f"a program {verb} {access['elements']:,} elements at once, {at(access)}; {most}."
                cause = "take a smaller block: more programs, or a loop that goes on from block to block."
                return Finding("block", message, cause)
    return None


# Words


def often_in_words(times: np.ndarray, allowed: int, name: str, verb: str, programs: list[int], launched: int) -> str:
    """Return which elements were stored or loaded too often, how often, and by which programs.

    times: of each element. programs: those that did so to the element with the most.
    """
    often = times > allowed
    by_all = len(programs) == launched > 1
    who = f"by {all_programs(launched) if by_all else programs_named(programs)}"
    if not by_all and often.sum() > 1:
        who = f"{element(np.unravel_index(int(times.argmax()), times.shape))} {who}"
    up_to = "" if (times[often] == times.max()).all() else "up to "
    return f"{elements_in_words(often)} of {name} {was(often)} {verb} {up_to}{how_often(int(times.max()))}, {who}"


def how_often(times: int) -> str:
    return {1: "once", 2: "twice"}.get(times, f"{times:,} times")


def programs_named(programs: list[int]) -> str:
    """Return "program 3", or "programs 0 and 1"."""
    return f"program{'s' * (len(programs) > 1)} {listed([str(program) for program in programs])}"


def memory_named(use: dict) -> str:
    return f"`{use['name']}`" if use["name"] else "memory"


def at(place: dict) -> str:
    return f"at {place_of(place['file'], place['line'])}{code_at(place['file'], place['line'])}"


def places_in_words(places: list) -> str:
    """Return lines of code, given as [file, line], with what stands there."""
    return listed([f"{place_of(file, line)}{code_at(file, line)}" for file, line in places])
