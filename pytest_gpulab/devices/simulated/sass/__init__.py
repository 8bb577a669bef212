"""Machine code: what the compiler made of the PTX, and how often each of its instructions must have been executed."""
