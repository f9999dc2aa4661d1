"""Compiles Triton kernels for GPUs that need not be there, and reads the machine code.

Triton brings the assembler and the disassemblers of NVIDIA, and LLVM for AMD.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
NVIDIA = (80, 90, 100)
AMD = ("gfx90a", "gfx942")


@dataclass(frozen=True)
class Code:
    """What the disassembler shows of one kernel."""

    registers: int
    stack: int
    """Bytes a thread keeps in memory: spilled registers (AMD: how many are spilled)."""
    shared: int
    instructions: tuple[str, ...]
    loops: tuple[tuple[str, ...], ...]
    ptx: str = ""

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, line)) for line in self.instructions)

    @cached_property
    def sample(self) -> tuple[str, ...]:
        """The innermost loop, one point of every row that a thread has: the shortest of those that
        round a position down."""
        pattern = r"FLOOR|v_floor"
        return min(
            (loop for loop in self.loops if any(re.search(pattern, line) for line in loop)),
            key=len,
        )


def compiled(
    kernel: Any,
    arch: int | str,
    type_of: Callable[[str], str],
    constants: dict[str, Any],
    options: dict[str, Any],
    divisible: tuple[str, ...] = (),
) -> Code:
    """Compile a kernel.

    Args:
        arch: the compute capability of an NVIDIA GPU, or the name of an AMD one.
        type_of: the type of an argument, by its name; pointers start at multiples of 16 bytes.
        divisible: integers that are multiples of 16.
    """
    constants = {name: constants[name] for name in kernel.arg_names if name in constants}
    signature = {
        name: "constexpr" if name in constants else type_of(name) for name in kernel.arg_names
    }
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*") or name in divisible
    }
    source = ASTSource(kernel, signature, constants, aligned)
    if isinstance(arch, str):
        target = GPUTarget("hip", arch, 64)
        return _read_amd(triton.compile(source, target=target, options=options).asm["amdgcn"])
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options).asm
    return _read_nvidia(made["cubin"], made["ptx"])


def _read_nvidia(cubin: bytes, ptx: str) -> Code:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _tool("cuobjdump", "-res-usage", file.name)
        text = _tool("nvdisasm", "-c", file.name)
    registers, stack, shared = (
        int(re.search(rf"{field}:(\d+)", usage)[1]) for field in ("REG", "STACK", "SHARED")
    )
    label, instruction = r"\s*(\.L_x_\d+):", r"/\*[0-9a-f]{4,}\*/\s+(.*?);"
    instructions, loops = _instructions(text, label, instruction, r"\bBRA\b.*?(\.L_x_\d+)")
    return Code(registers, stack, shared, instructions, loops, ptx)


def _read_amd(text: str) -> Code:
    def field(name: str) -> int:
        return int(re.search(rf"\.{name}:\s+(\d+)", text)[1])

    label, instruction = r"(\.LBB\d+_\d+):", r"^\t([a-z]\w+.*?)(?:\s*;.*)?$"
    instructions, loops = _instructions(text, label, instruction, r"s_c?branch\S*\s+(\.LBB\d+_\d+)")
    return Code(
        field("vgpr_count"),
        field("vgpr_spill_count"),
        field("group_segment_fixed_size"),
        instructions,
        loops,
    )


def _instructions(
    text: str, label: str, instruction: str, jump: str
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """All instructions of a disassembly, and those of every loop: from a label to the jump back."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    loops = []
    for line in text.splitlines():
        if found := re.match(label, line):
            labels[found[1]] = len(instructions)
        elif found := re.search(instruction, line):
            instructions.append(found[1])
            back = re.search(jump, found[1])
            if back and back[1] in labels:
                loops.append(tuple(instructions[labels[back[1]] :]))
    return tuple(instructions), tuple(loops)


def _tool(name: str, *arguments: str) -> str:
    return subprocess.run(
        [TOOLS / name, *arguments], check=True, capture_output=True, text=True
    ).stdout
