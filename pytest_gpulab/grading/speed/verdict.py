"""The verdict on a measured or estimated speedup, and its findings."""

from collections.abc import Mapping

from pytest_gpulab.grading.compilation.builds import BuildFailed
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import EXERCISES_MISTAKE, NEEDS_A_GPU, Finding, Measurement

from .statistics import Decision, Ratio, decide

QUESTIONS: Mapping[str, str] = {
    "shared memory": "Which of the 32 banks does each lane of a warp use, and how many of them share one?",
    "global memory": "Which addresses do neighbouring lanes of a warp access, and how far apart are they?",
    "constant memory": "Do all lanes of a warp need the same address at the same time?",
    "idle lanes": "Which lanes of a warp have work there, and could the active lanes be neighbours?",
    "instructions": "Which of them does every thread repeat, and which could be done once, or not at all?",
    "special functions": "Is every one of them needed, and at this precision?",
    "arithmetic": "Does every thread need all of these operations, in this type?",
    "barriers": "Which threads need values of others after each barrier: the whole block, or fewer?",
    "atomics": "How many threads update the same word, and could they combine their values first?",
    "latency": "What could a thread do while it waits, and how many loads are in flight at once?",
    "few blocks": "How many multiprocessors does the GPU have, and how many blocks are there?",
    "many blocks": "How much does one block do before it ends, and could a thread do more than one element?",
    "fences": "Which threads publish values for other blocks, and could one thread's fence serve the whole block?",
    "waiting for blocks": "Which value does a block wait for, and how early could another block publish it?",
    "memory bandwidth": "Is every byte read and written only once?",
    "calls": "Which functions could be inlined, and do the lanes of a warp call the same one?",
    "local memory": "Which of these arrays could be in registers or in shared memory, and how large must they be?",
}

# The number of accesses is the limit here; their pattern is good already.
_TOO_MANY = (
    "shared memory: accesses without bank conflicts",
    "global memory: the number of",
    "constant memory: its loads",
)
_FEWER = "How many accesses does each element need, and which values could stay in registers?"


def decision(measurement: Measurement) -> Decision:
    """Return the decision on a speedup; an estimate has no interval and is never undecided."""
    speedup, low, high = measurement.speedup, measurement.low, measurement.high
    return decide(
        Ratio(speedup, speedup if low is None else low, speedup if high is None else high), measurement.threshold
    )


def too_slow(measurement: Measurement) -> Finding:
    """Return the finding of a speedup below its threshold.

    The threshold is only in the check's name, so that all failed tiers of a measurement share one finding.
    """
    how = "An estimated speedup of ~" if measurement.estimated else "A speedup of "
    what = f"{how}{measurement.speedup:.2f}x over {measurement.baseline}."
    hint = f"Limited by {measurement.bottleneck}. {question(measurement.bottleneck)}".rstrip()
    return finding("too-slow", what, evidence=_times(measurement), hint=hint if measurement.bottleneck else "")


def question(bottleneck: str) -> str:
    """Return the question for a bottleneck, by the words before its colon; empty if there is none."""
    return _FEWER if bottleneck.startswith(_TOO_MANY) else QUESTIONS.get(bottleneck.partition(":")[0], "")


def inconclusive(measurement: Measurement) -> Finding:
    """Return the finding of a speedup with an interval that contains the threshold."""
    what = (
        f"The speedup over {measurement.baseline} is between {measurement.low:.3f}x and {measurement.high:.3f}x. "
        f"This interval contains the threshold {measurement.threshold:g}x. The check earns its points."
    )
    return finding("inconclusive", what, evidence=_times(measurement))


def _times(measurement: Measurement) -> tuple[str, ...]:
    """Return the lines of evidence of a speedup."""
    tilde, own_ms, baseline_ms = "~" * measurement.estimated, measurement.elapsed_ms, measurement.baseline_ms
    times = f"{tilde}{own_ms:.4g} ms against {tilde}{baseline_ms:.4g} ms at size {measurement.size}"
    shared = f"the GPU was shared with {', '.join(measurement.shared_with)}" if measurement.shared_with else ""
    return tuple(line for line in (times, measurement.certainty, shared) if line)


def unusable(baseline: str, blocked: BuildFailed) -> BuildFailed:
    """Return the failure of a baseline, which is not the submission's fault and makes the tier not gradable."""
    cause = blocked.finding
    if cause.code in NEEDS_A_GPU:
        what = cause.what[0].lower() + cause.what[1:].removesuffix(".")
        return not_timed(f"{what}, which the exercise's baseline {baseline} needs")
    if blocked.verdict == "not gradable":
        return blocked
    what = f"The exercise's baseline {baseline} cannot be used: {cause.what}"
    return BuildFailed("not gradable", finding(EXERCISES_MISTAKE, what, cause.where, cause.evidence))


def not_timed(why: str) -> BuildFailed:
    """Return the reason why there is no figure; `why` is a clause."""
    return BuildFailed("not gradable", finding("not-timed", f"The speed cannot be graded here: {why}."))
