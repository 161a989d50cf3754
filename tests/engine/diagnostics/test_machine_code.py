"""kjit.engine.diagnostics.machine_code: the content of a disassembly."""

from __future__ import annotations

import pytest

from kjit.engine.diagnostics.machine_code import Instruction, cubins_in, parse_sass

# From nvdisasm 13.1 -gi -c, shortened.
SASS = """\t.headerflags\t@"EF_CUDA_SM90 EF_CUDA_PTX_SM(EF_CUDA_SM90)"
\t.target\tsm_90a

//--------------------- .text._Z4copyIfEvPKfPf --------------------------
\t.section\t.text._Z4copyIfEvPKfPf,"ax",@progbits
.text._Z4copyIfEvPKfPf:
\t//## File "/p/copy.cuh", line 7
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/k/device.cuh", line 97 inlined at "/p/copy.cuh", line 9
\t//## File "/p/copy.cuh", line 9
        /*0010*/                   LDG.E.128.CONSTANT R8, desc[UR4][R4.64] ;
        /*0020*/              @!P0 STG.E.EF.64 desc[UR4][R4.64], R8 ;
        /*0030*/                   LDS.U16 R3, [R2] ;
        /*0040*/                   FFMA R3, R3, R4, R5 ;
        /*0050*/              @P0 BRA `(.L_x_0) ;
        /*0060*/                   EXIT ;
.L_x_0:
        /*0070*/                   BRA `(.L_x_0) ;
        /*0080*/                   NOP;
.L_x_1:

//--------------------- .nv.shared._Z4copyIfEvPKfPf --------------------------
"""


def test_instructions_have_their_text_and_the_places_that_they_come_from() -> None:
    (kernel,) = parse_sass(SASS)
    assert (kernel.name, kernel.arch, kernel.size) == ("copy<float>", "sm_90a", 8)
    first, load, store = kernel.instructions[:3]
    assert (first.address, first.text, first.places) == (0, "LDC R1, c[0x0][0x28]", (("/p/copy.cuh", 7),))
    assert load.places == (("/k/device.cuh", 97), ("/p/copy.cuh", 9))
    assert (store.opcode, store.places) == ("STG.E.EF.64", load.places)


def test_a_kernel_with_a_short_name_is_found() -> None:
    """nvdisasm pads it."""
    (kernel,) = parse_sass(SASS.replace(".text._Z4copyIfEvPKfPf -", ".text._Z1kPf              -"))
    assert kernel.instructions


def test_loads_and_stores_are_counted_by_memory_and_width() -> None:
    (kernel,) = parse_sass(SASS)
    widths = {kind: dict(kernel.widths(kind)) for kind in kernel.kinds if kernel.widths(kind)}
    assert widths == {"global loads": {128: 1}, "global stores": {64: 1}, "shared loads": {16: 1}}
    assert kernel.kinds["branches"] == 3


@pytest.mark.parametrize(
    ("text", "kind", "bits"),
    [
        ("LDG.E.ENL2.256 R8, R4, desc[UR4][R2.64]", "global loads", 256),
        ("LDG.E.U8.CONSTANT R8, desc[UR4][R4.64]", "global loads", 8),
        ("LDGSTS.E.BYPASS.128 [R3], desc[UR4][R4.64]", "global to shared copies", 128),
        ("HMMA.16816.F32.BF16 R4, R4, R8, RZ", "tensor cores", None),
        ("@!UP0 UIADD3 UR4, UR4, 0x1, URZ", "integers", None),
        ("MUFU.RSQ R4, R5", "special functions", None),
        ("ATOMG.E.ADD.STRONG.GPU PT, R4, desc[UR4][R2.64], R5", "atomics", None),
        ("ACQBULK", "other", None),
    ],
)
def test_what_an_instruction_does(text: str, kind: str, bits: int | None) -> None:
    instruction = Instruction(0, text, ())
    assert (instruction.kind, instruction.bits) == (kind, bits)


def elf(machine: int, *, sections: int, content: bytes = b"") -> bytes:
    """The header of a 64-bit ELF file whose table of sections is at its end, and all of the file."""
    header = bytearray(64)
    header[:5] = b"\x7fELF\x02"
    header[18:20] = machine.to_bytes(2, "little")
    header[40:48] = (64 + len(content)).to_bytes(8, "little")
    header[58:60], header[60:62] = (64).to_bytes(2, "little"), sections.to_bytes(2, "little")
    return bytes(header) + content + bytes(64 * sections)


def test_cubins_that_lie_in_a_library_are_found_whole() -> None:
    first, second = elf(190, sections=2, content=b"code"), elf(190, sections=1)
    library = elf(62, sections=1, content=b"....") + first + b"..." + second + b"\x7fELF\x02"
    assert list(cubins_in(library)) == [first, second]
    assert list(cubins_in(elf(62, sections=1))) == []
