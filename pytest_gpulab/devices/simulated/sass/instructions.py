"""Machine instructions of compute capability 7.0 and later: guard, opcode and jump target.

An instruction has 128 bits. NVIDIA documents names only (CUDA Binary Utilities, "Instruction Set Reference"). The
fields were derived from the output of `nvdisasm`, and a test compares them with it. Bits 0 to 8 are the operation,
bits 9 to 11 the form of its operands, bits 12 to 14 the guarding predicate (7: none), and bit 15 its negation.
"""

from dataclasses import dataclass

NBYTES = 16  # per instruction, since compute capability 7.0
_ALWAYS, _NEVER = 7, 15  # PT and !PT
_IMMEDIATE, _UNIFORM = 4, 5  # forms of a jump: to a fixed address, and on a uniform condition

BRA, BRX, JMP, JMX, EXIT, KILL = 0x147, 0x149, 0x14A, 0x14C, 0x14D, 0x15B
CALL_ABSOLUTE, CALL, RET = 0x143, 0x144, 0x150
BSSY, BSYNC, BREAK, NOP = 0x145, 0x141, 0x142, 0x118
LDC, LDS, STS, LDG, STG, BAR = 0x182, 0x184, 0x188, 0x181, 0x186, 0x11D
LD, ST, LDL, STL = 0x180, 0x185, 0x183, 0x187
ATOMS, ATOMS_CAS, ATOMG, ATOMG_CAS, RED = 0x18C, 0x18D, 0x1A8, 0x1A9, 0x18E
SHFL, VOTE, VOTEU, MATCH, REDUX, MUFU = 0x189, 0x006, 0x086, 0x1A1, 0x1C4, 0x108
FADD, FMUL, FFMA, DADD, DMUL, DFMA, FCHK = 0x021, 0x020, 0x023, 0x029, 0x028, 0x02B, 0x102

MEETING = {BSYNC, NOP, 0x148, 0x146}
"""Instructions at reconvergence: BSYNC, and WARPSYNC, YIELD and NOP beside it."""
FIXED = {LDG, STG, LD, ST, LDS, STS, LDL, STL, ATOMS, ATOMS_CAS, ATOMG, ATOMG_CAS, RED, BAR, SHFL, VOTE, MATCH, REDUX}
"""Instructions that the assembler never moves, merges or drops."""
INTEGER = {*range(0x002, 0x01D), 0x045, 0x046, 0x048}
"""Instructions of the integer units: three-way sums, comparisons, selections, minima, shifts, logic. VIADD is none: on
an H200, shared_atomics of tests/h200 executes a VIADD, a LOP3 and a LEA in the time of two such instructions."""
MEETING_UNIT = {BRX, JMX, EXIT, KILL, RET, BSSY, BSYNC, BREAK, 0x148}
"""Instructions of the convergence barrier unit: those at which lanes of a warp part, meet (0x148: WARPSYNC) or end."""
SPECIAL = {MUFU, 0x100, 0x101, 0x102, 0x103, 0x104, 0x105, 0x106, 0x107, 0x109}
"""Instructions of the special function units: also FCHK of divisions, bit counts and conversions."""
FLOATING = {FADD, FMUL, FFMA, DADD, DMUL, DFMA, MUFU, FCHK}
"""Instructions that the assembler seldom moves or drops. FCHK is in each division that has no MUFU, too."""
_LEAVES = {EXIT, RET, KILL, JMX}
_JUMPS = {BRA, BRX, JMP}


@dataclass(frozen=True)
class MachineInstruction:
    """One machine instruction."""

    address: int  # byte offset in its function
    operation: int  # bits 0 to 8
    word: int  # all 128 bits
    number: int  # number of its PTX statement (`Instruction.number`), -1 if unknown

    @property
    def guarded(self) -> bool:
        """True if it has a guard, which may be false."""
        return self.word >> 12 & 15 not in (_ALWAYS, _NEVER)

    @property
    def never(self) -> bool:
        """True if its guard is always false."""
        return self.word >> 12 & 15 == _NEVER

    @property
    def stall(self) -> int:
        """Cycles until the next instruction of its warp may issue."""
        return self.word >> 105 & 15

    @property
    def result(self) -> int:
        """The scoreboard of a result of variable latency; 7 for none."""
        return self.word >> 110 & 7

    @property
    def waits(self) -> int:
        """The scoreboards that it waits for, as a bit mask."""
        return self.word >> 116 & 63

    @property
    def ends_block(self) -> bool:
        """True if it ends a basic block."""
        return self.operation in _LEAVES or self.operation in _JUMPS or self.operation in (CALL, BSYNC)

    @property
    def nbytes(self) -> int:
        """Bytes per lane of a load or store."""
        return (1, 1, 2, 2, 4, 8, 16, 16)[self.word >> 73 & 7]

    @property
    def leaves(self) -> bool:
        """True if lanes exit or return here."""
        return self.operation in _LEAVES

    @property
    def jumps(self) -> bool:
        """True if it is a jump."""
        return self.operation in _JUMPS

    @property
    def conditional(self) -> bool:
        """True if it is guarded, or a jump with a condition among its operands."""
        condition = self.operation == BRA and (self.word >> 9 & 7 == _UNIFORM or self.word >> 87 & 7 != _ALWAYS)
        return self.guarded or condition

    @property
    def falls_through(self) -> bool:
        """True if the next instruction may follow it."""
        return self.conditional or not (self.operation in _LEAVES or self.operation in _JUMPS)

    def target(self, architecture: int) -> int | None:
        """Return the target address of a jump or call, or None if it is not part of the instruction."""
        if self.operation not in (BRA, CALL, JMP) or self.word >> 9 & 7 not in (_IMMEDIATE, _UNIFORM):
            return None
        offset = _signed(self.word >> 34 & (1 << 48) - 1, 48) * 4
        if architecture >= 90:  # the lowest byte of the offset is in another field
            offset = (offset << 8) + (self.word >> 16 & 0xFF) * 4
        return self.address + NBYTES + offset


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def decode(code: bytes) -> list[MachineInstruction]:
    """Return the instructions of a function, without their PTX statements."""
    words = [int.from_bytes(code[start : start + NBYTES], "little") for start in range(0, len(code), NBYTES)]
    return [MachineInstruction(NBYTES * i, word & 0x1FF, word, -1) for i, word in enumerate(words)]
