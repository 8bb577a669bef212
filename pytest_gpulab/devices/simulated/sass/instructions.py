"""Machine instructions of compute capability 7.0 and later, as far as counting them needs: guard, opcode, jump target.

An instruction has 128 bits. NVIDIA documents names only (CUDA Binary Utilities, "Instruction Set Reference"); the
fields used here were read off what `nvdisasm` prints, and a test holds them against it: bits 0 to 8 are the operation,
bits 9 to 11 the form of its operands, bits 12 to 14 the guarding predicate (7: none) and bit 15 its negation.
"""

from __future__ import annotations

from dataclasses import dataclass

NBYTES = 16
_ALWAYS, _NEVER = 7, 15  # PT and !PT
_IMMEDIATE, _UNIFORM = 4, 5  # forms of a jump: to a fixed place, and on a condition that all lanes share

BRA, BRX, JMP, JMX, EXIT, KILL = 0x147, 0x149, 0x14A, 0x14C, 0x14D, 0x15B
CALL_ABSOLUTE, CALL, RET = 0x143, 0x144, 0x150
BSSY, BSYNC, BREAK, NOP = 0x145, 0x141, 0x142, 0x118
LDC, LDS, STS, LDG, STG, BAR = 0x182, 0x184, 0x188, 0x181, 0x186, 0x11D
LD, ST, LDL, STL = 0x180, 0x185, 0x183, 0x187
ATOMS, ATOMS_CAS, ATOMG, ATOMG_CAS, RED = 0x18C, 0x18D, 0x1A8, 0x1A9, 0x18E
SHFL, VOTE, VOTEU, MATCH, REDUX, MUFU = 0x189, 0x006, 0x086, 0x1A1, 0x1C4, 0x108
FADD, FMUL, FFMA, DADD, DMUL, DFMA = 0x021, 0x020, 0x023, 0x029, 0x028, 0x02B

MEETING = {BSYNC, NOP, 0x148, 0x146}
"""Where the lanes of a warp meet again: BSYNC, and WARPSYNC, YIELD, NOP beside it."""
FIXED = {LDG, STG, LD, ST, LDS, STS, LDL, STL, ATOMS, ATOMS_CAS, ATOMG, ATOMG_CAS, RED, BAR, SHFL, VOTE, MATCH, REDUX}
"""What the assembler leaves where the PTX has it, as often as the PTX has it."""
FLOATING = {FADD, FMUL, FFMA, DADD, DMUL, DFMA, MUFU}
"""What it may leave out or move, but seldom does."""
_LEAVES = {EXIT, RET, KILL, JMX}
_JUMPS = {BRA, BRX, JMP}


@dataclass(frozen=True)
class MachineInstruction:
    """One machine instruction.

    Attributes:
        address: in its function, in bytes.
        operation: bits 0 to 8.
        word: all 128 bits.
        number: of the PTX statement that it was made for (`Instruction.number`), -1 if unknown.
    """

    address: int
    operation: int
    word: int
    number: int

    @property
    def guarded(self) -> bool:
        """Whether a predicate can switch it off."""
        return self.word >> 12 & 15 not in (_ALWAYS, _NEVER)

    @property
    def never(self) -> bool:
        """Whether it is always switched off."""
        return self.word >> 12 & 15 == _NEVER

    @property
    def ends_block(self) -> bool:
        """Whether control may go elsewhere after it."""
        return self.operation in _LEAVES or self.operation in _JUMPS or self.operation in (CALL, BSYNC)

    @property
    def nbytes(self) -> int:
        """Bytes of a lane's access to memory, of a load or store."""
        return (1, 1, 2, 2, 4, 8, 16, 16)[self.word >> 73 & 7]

    @property
    def leaves(self) -> bool:
        """Whether lanes exit or return here."""
        return self.operation in _LEAVES

    @property
    def jumps(self) -> bool:
        """Whether lanes may go to another place than the next."""
        return self.operation in _JUMPS

    @property
    def conditional(self) -> bool:
        """Whether not every lane need follow it: guarded, or a jump with a condition among its operands."""
        condition = self.operation == BRA and (self.word >> 9 & 7 == _UNIFORM or self.word >> 87 & 7 != _ALWAYS)
        return self.guarded or condition

    @property
    def falls_through(self) -> bool:
        """Whether control may go on behind it."""
        return self.conditional or not (self.operation in _LEAVES or self.operation in _JUMPS)

    def target(self, architecture: int) -> int | None:
        """Return the address that a jump or call leads to, or None where it is not in the instruction."""
        if self.operation not in (BRA, CALL, JMP) or self.word >> 9 & 7 not in (_IMMEDIATE, _UNIFORM):
            return None
        offset = _signed(self.word >> 34 & (1 << 48) - 1, 48) * 4
        if architecture >= 90:  # the lowest byte of the offset lies apart
            offset = (offset << 8) + (self.word >> 16 & 0xFF) * 4
        return self.address + NBYTES + offset


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def decode(code: bytes) -> list[MachineInstruction]:
    """Return the instructions of a function, without the PTX statements that they come from."""
    words = [int.from_bytes(code[start : start + NBYTES], "little") for start in range(0, len(code), NBYTES)]
    return [MachineInstruction(NBYTES * i, word & 0x1FF, word, -1) for i, word in enumerate(words)]
