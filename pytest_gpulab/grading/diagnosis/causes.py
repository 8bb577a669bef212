"""The usual causes of wrong elements, by their positions: hints that never give the solution."""

FIRST_ONE = "Usual cause: a special case of the first element. Is something skipped there, or not yet set?"
ALL_BUT_FIRST = "Usual cause: the value that each element takes from the one before it. Follow element 1 step by step."
LAST_ONE = "Usual cause: a bounds check or a loop that ends one too early. What happens at the last index?"
LAST_ALONE = (
    "Usual cause: a bounds check or a loop that ends one too early, or one that takes only whole vectors, warps or "
    "blocks. At this length, one element is left over."
)
LAST_BLOCK = "Usual cause: the last block is not full. Does a bounds check, a loop or a barrier assume that it is?"
SECOND_BLOCK = (
    "Usual cause: a difference between the second block and the first. It may not be full, its indices need its "
    "number, and it may need a value from the block before."
)
LAST_FULL_BLOCK = (
    "Usual cause: a block count or a loop that ends one block too early. What is different in the last one?"
)
TAIL = (
    "Usual cause: a length that is not a multiple of the elements processed at once (by a warp, a block or a vector). "
    "Which threads process the rest?"
)
AFTER_FIRST_BLOCK = (
    "Usual cause: an index that leaves out the block's number, or a value that a block needs from earlier blocks."
)
BLOCK_LEFT_OUT = "Usual cause: an index that leaves out the block's number. Does it contain blockIdx?"
FROM_BLOCK_ON = "Usual cause: a value that a block needs from earlier blocks, or a limited number of blocks."
FIRST_BLOCK = (
    "Usual cause: a step that only the first block makes, or must not make because there is no block before it."
)
WHOLE_BLOCKS = (
    "Usual cause: blocks that depend on each other's order, or an index that is computed from the block's number."
)
_OF_BLOCK = "Usual cause: the {0} thread of a block. What does it read from its {1}, and is that of its own block?"
FIRST_OF_BLOCK, LAST_OF_BLOCK = _OF_BLOCK.format("first", "left"), _OF_BLOCK.format("last", "right")
OTHER_WARPS = (
    "Usual cause: only the first warp computes or gets a value that all warps need. Does every warp receive what the "
    "others computed?"
)
IN_EACH_BLOCK = "Usual cause: a loop or a condition on the thread's number that covers only a part of the block."
STRIDED = (
    "Usual cause: an index, a condition or an input that differs for these elements. Which lines and which threads "
    "compute them, and which compute the ones in between?"
)
LANE = (
    "Usual cause: lanes of each warp that differ from the others. In a shuffle, which lanes have no lane to take a "
    "value from, and what do they do with what they get?"
)
ROUND = (
    "Usual cause: a round that is left out, such as the first or the last one of a tree, or an index with a factor in "
    "it. Which distances does the loop take?"
)
BOTH_ENDS = (
    "Usual cause: the neighbours beyond the edges. Which elements have neighbours outside of the array, and what do "
    "those count as?"
)
START = "Usual cause: a value that the first threads read before it is set, or an index that begins too late."
FROM_INDEX_ON = (
    "Usual cause: something that ends or changes at that index: the steps of a loop, a block, or a type's range."
)
TOO_SHORT = "Usual cause: an index with too small a factor, too few steps of a loop, or a limited number of blocks."
_EDGE = "Usual cause: the bounds check at the {0} edge, where a block is not full. Are x and y tested apart?"
LAST_COLUMNS, LAST_ROWS = _EDGE.format("right"), _EDGE.format("lower")
FIRST_EDGES = (
    "Usual cause: an index below 0 at the left and the upper edge. Is it tested, and can its type be negative? An "
    "unsigned number wraps around."
)
CORNER = (
    "Usual cause: a loop over the neighbours leaves some of them out. Only the elements in this corner have none there."
)
NO_NEIGHBOURS = (
    "Usual cause: something that only the elements at this edge do not need, such as neighbours beyond it. Does a loop "
    "leave one out?"
)
_PART = (
    "Usual cause: the {0} part of an index or of the bounds check, or the {1} part if rows and columns change places. "
    "Look at blockIdx, blockDim, threadIdx, the items of a thread and the bound."
)
IN_X, IN_Y = _PART.format("x", "y"), _PART.format("y", "x")
PITCH = (
    "Usual cause: the pitch in an index. In `row * pitch + column` it is the length of that array's own rows; a "
    "transposed array has rows of another length."
)
EDGES = (LAST_COLUMNS, LAST_ROWS, IN_X, IN_Y)
SAME_INDEX = (
    "Usual cause: x and y are swapped or the same in a block. Which of threadIdx and blockDim is in each of them?"
)
OFF_DIAGONAL = "Usual cause: x and y, or width and height, are swapped in an index."
