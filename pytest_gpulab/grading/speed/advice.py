"""A question for each kind of bottleneck: it points to what to look at next, and leaves the answer to the student."""

from __future__ import annotations

from collections.abc import Mapping

QUESTIONS: Mapping[str, str] = {
    "shared memory": "Which of the 32 banks does each lane of a warp use, and how many of them share one?",
    "global memory": "Which addresses do neighbouring lanes of a warp ask for, and how far apart are they?",
    "constant memory": "Do all lanes of a warp need the same address at the same time?",
    "idle lanes": "Which lanes of a warp have something to do there, and could the same lanes be side by side?",
    "instructions": "Which of them does every thread repeat, and which could be done once, or not at all?",
    "special functions": "Is every one of them needed, and as exact as it is?",
    "arithmetic": "Does every thread need all of these operations, in this type?",
    "barriers": "Who needs whose values after each barrier: the whole block, or less?",
    "atomics": "How many threads update the same word, and could they agree on something first?",
    "latency": "What could a thread do while it waits, and how many loads does it have under way at once?",
    "few blocks": "How many multiprocessors does the GPU have, and how many blocks are there?",
    "many blocks": "How much does one block do before it ends, and could a thread do more than one element?",
    "waiting for blocks": "What has to be known before a block can go on, and how early could another one tell it?",
    "memory bandwidth": "Is every byte read and written only once?",
}

# Here it is how many accesses there are that limits, and their pattern is right already.
_TOO_MANY = (
    "shared memory: accesses without bank conflicts",
    "global memory: the number of accesses",
    "constant memory: its loads",
)
_FEWER = "How many accesses does each element need, and which values could stay in registers?"


def question(bottleneck: str) -> str:
    """Return the question that goes with a bottleneck, by the words before its colon; empty where there is none."""
    return _FEWER if bottleneck.startswith(_TOO_MANY) else QUESTIONS.get(bottleneck.partition(":")[0], "")
