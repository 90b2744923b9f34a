"""What the CPU says about itself, by the CPUID instruction (x86-64 Linux)."""

import ctypes
import mmap
import platform
import re
from pathlib import Path

TILE_LEAF = 0x1D

# void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t registers[4]): eax, ebx, ecx, edx
CODE = bytes.fromhex(
    "53"  # push rbx
    "89f8"  # mov eax, edi
    "89f1"  # mov ecx, esi
    "4989d0"  # mov r8, rdx
    "0fa2"  # cpuid
    "418900"  # mov [r8], eax
    "41895804"  # mov [r8 + 4], ebx
    "41894808"  # mov [r8 + 8], ecx
    "4189500c"  # mov [r8 + 12], edx
    "5b"  # pop rbx
    "c3"  # ret
)


def cpuid(leaf: int, subleaf: int = 0) -> tuple[int, int, int, int]:
    """eax, ebx, ecx and edx."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(CODE)
        start = ctypes.c_char.from_buffer(page)
        function = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32))
        registers = (ctypes.c_uint32 * 4)()
        function(ctypes.addressof(start))(leaf, subleaf, registers)
        del start  # or the page could not be closed
        return tuple(registers)


def flags() -> list[str]:
    """The features that Linux reports."""
    found = re.search(r"flags\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1].split() if found else []


def amx_is_hidden() -> bool:
    """Whether there is AMX, but the leaf that describes its tiles is missing or empty.

    Some hypervisors cut CPUID short. oneDNN then does not use AMX, and some of its bf16 functions die of an illegal
    instruction.
    """
    if platform.machine() != "x86_64" or "amx_bf16" not in flags():
        return False
    # Beyond the last leaf a CPU returns the contents of another one.
    return cpuid(0)[0] < TILE_LEAF or not any(cpuid(TILE_LEAF, 1))
