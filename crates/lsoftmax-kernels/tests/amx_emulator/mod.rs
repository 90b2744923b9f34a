//! Lets a CPU without AMX run the AMX instructions of `src/amx_tile.rs`.
//!
//! Such a CPU raises an invalid-opcode exception, which Linux turns into SIGILL. The handler here
//! decodes the instruction, executes it on tiles stored per thread, and resumes after it. So the tests
//! run exactly the machine code that runs on a CPU with AMX. An instruction that would fault there
//! (even if not with an invalid opcode), or that is not in this table, still kills the process with
//! SIGILL:
//!
//! | Instruction | Encoding |
//! |---|---|
//! | LDTILECFG | `VEX.128.NP.0F38.W0 49 !(11):000:bbb` |
//! | TILERELEASE | `VEX.128.NP.0F38.W0 49 C0` |
//! | TILEZERO | `VEX.128.F2.0F38.W0 49 11:rrr:000` |
//! | TILELOADD | `VEX.128.F2.0F38.W0 4B !(11):rrr:100` |
//! | TILELOADDT1 | `VEX.128.66.0F38.W0 4B !(11):rrr:100` |
//! | TILESTORED | `VEX.128.F3.0F38.W0 4B !(11):rrr:100` |
//! | TDPBF16PS | `VEX.128.F3.0F38.W0 5C 11:rrr:bbb` |
//!
//! Unsupported, and so fatal as well: instructions with a segment or address-size prefix, and a
//! configuration that resumes an interrupted load (`start_row` other than zero).

#![allow(unsafe_code, reason = "a signal handler that interprets machine code")]

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Once;

use libc::{
    REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RAX, REG_RBP,
    REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP,
};

/// Installs the handler for the whole process. Only for CPUs without AMX.
pub fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
            on_illegal_instruction;
        // SAFETY: all zeroes is a valid `sigaction`: no flags and an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler has the signature SA_SIGINFO asks for. It is called for exceptions of
        // the thread's own instructions, so it never interrupts code that cannot be interrupted.
        let status = unsafe { libc::sigaction(libc::SIGILL, &action, ptr::null_mut()) };
        assert_eq!(status, 0, "could not install the handler of SIGILL");
    });
}

extern "C" fn on_illegal_instruction(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the third argument is the context of the interrupted thread, which is
    // this handler's alone until it returns.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let next = Instruction::decode(registers).and_then(|instruction| {
        MACHINE.with_borrow_mut(|machine| machine.execute(&instruction))?;
        Some(instruction.next)
    });
    match next {
        Some(next) => registers[REG_RIP as usize] = next as i64,
        // SAFETY: both functions may be called from a signal handler. The signal stays blocked until
        // this handler returns, and then kills the process.
        None => unsafe {
            libc::signal(libc::SIGILL, libc::SIG_DFL);
            libc::raise(libc::SIGILL);
        },
    }
}

/// An instruction in the 0F38 map with a three-byte VEX prefix, W and L zero.
struct Instruction {
    opcode: u8,
    /// The mandatory prefix it stands for: none, 66, F3, F2.
    prefix: u8,
    /// The register in `VEX.vvvv`.
    vvvv: usize,
    /// The register in `ModRM.reg`.
    reg: usize,
    operand: Operand,
    /// The address of the instruction after it.
    next: u64,
}

/// What `ModRM.r/m` stands for.
enum Operand {
    Register(usize),
    /// `start` is base and displacement; `index` is the scaled index, if there is an SIB byte.
    Memory {
        start: u64,
        index: Option<u64>,
    },
}

impl Instruction {
    /// Decodes the instruction at RIP, if it has the form of one of AMX.
    fn decode(registers: &[i64; 23]) -> Option<Self> {
        let register =
            |number: u8| registers[GENERAL_REGISTERS[usize::from(number)] as usize] as u64;
        let mut code = Code(registers[REG_RIP as usize] as u64);

        if code.byte() != 0xC4 {
            return None;
        }
        // R, X, B and vvvv are stored inverted.
        let (rxb_map, w_vvvv_l_pp) = (code.byte(), code.byte());
        let [r, x, b] = [7, 6, 5].map(|bit| (!rxb_map >> bit & 1) << 3);
        let vvvv = usize::from(!w_vvvv_l_pp >> 3 & 15);
        if rxb_map & 31 != 2 || w_vvvv_l_pp & 0b1000_0100 != 0 {
            return None;
        }
        let opcode = code.byte();
        let modrm = code.byte();
        let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);

        let operand = if mode == 3 {
            Operand::Register(usize::from(b | rm))
        } else {
            let sib = (rm == 4).then(|| code.byte());
            let base = sib.unwrap_or(rm) & 7;
            let index = sib.map(|sib| match x | sib >> 3 & 7 {
                4 => 0,
                index => register(index) << (sib >> 6),
            });
            let start = match (mode, base) {
                (0, 5) if sib.is_some() => code.displacement32(),
                // Relative to the end of the instruction, which is the end of the displacement.
                (0, 5) => code.displacement32().wrapping_add(code.0),
                (0, _) => register(b | base),
                (1, _) => register(b | base).wrapping_add(code.displacement8()),
                (_, _) => register(b | base).wrapping_add(code.displacement32()),
            };
            Operand::Memory { start, index }
        };
        Some(Self {
            opcode,
            prefix: w_vvvv_l_pp & 3,
            vvvv,
            reg: usize::from(r | reg),
            operand,
            next: code.0,
        })
    }
}

/// Where in the saved registers the one with a given number in the encoding is.
const GENERAL_REGISTERS: [c_int; 16] = [
    REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9,
    REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
];

/// The address of the next byte to decode.
struct Code(u64);

impl Code {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let bytes = read(self.0);
        self.0 += N as u64;
        bytes
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.bytes();
        byte
    }

    fn displacement8(&mut self) -> u64 {
        i64::from(i8::from_le_bytes(self.bytes())) as u64
    }

    fn displacement32(&mut self) -> u64 {
        i64::from(i32::from_le_bytes(self.bytes())) as u64
    }
}

/// Reads memory of the interrupted program. An invalid address kills the process here as well.
fn read<const N: usize>(address: u64) -> [u8; N] {
    // SAFETY: the interrupted instruction reads this memory, so the program guarantees that it can.
    unsafe { ptr::with_exposed_provenance::<[u8; N]>(address as usize).read_unaligned() }
}

type Tile = [[u8; 64]; 16];

/// The AMX state of a thread. Outside its shape a tile is zero.
struct Machine {
    /// Rows and bytes per row of each tile; zero for one that must not be used.
    shapes: [(usize, usize); 8],
    tiles: [Tile; 8],
}

thread_local! {
    // Initialised at compile time and without a destructor, so that its first use, in a signal
    // handler, neither allocates nor registers anything.
    static MACHINE: RefCell<Machine> = const { RefCell::new(Machine::RELEASED) };
}

impl Machine {
    const RELEASED: Self = Self { shapes: [(0, 0); 8], tiles: [[[0; 64]; 16]; 8] };

    /// Executes an instruction, unless that would fault.
    fn execute(&mut self, instruction: &Instruction) -> Option<()> {
        let &Instruction { reg, vvvv, .. } = instruction;
        match (instruction.opcode, instruction.prefix, &instruction.operand) {
            (0x5C, 2, &Operand::Register(rm)) => self.dot_bf16(reg, rm, vvvv),
            _ if vvvv != 0 => None,
            (0x49, 0, &Operand::Memory { start, index }) if reg == 0 => {
                self.configure(&read(start.wrapping_add(index.unwrap_or(0))))
            }
            (0x49, 0, Operand::Register(0)) if reg == 0 => {
                *self = Self::RELEASED;
                Some(())
            }
            (0x49, 3, Operand::Register(0)) => {
                self.shape(reg)?;
                self.tiles[reg] = [[0; 64]; 16];
                Some(())
            }
            (0x4B, 1 | 3, &Operand::Memory { start, index }) => self.load(reg, start, index?),
            (0x4B, 2, &Operand::Memory { start, index }) => self.store(reg, start, index?),
            _ => None,
        }
    }

    /// Rows and bytes per row of a tile that may be used. (TILEZERO does not require the second
    /// condition, but `amx_tile.rs` always satisfies it.)
    fn shape(&self, tile: usize) -> Option<(usize, usize)> {
        let &(rows, row_bytes) = self.shapes.get(tile)?;
        (rows > 0 && row_bytes.is_multiple_of(4)).then_some((rows, row_bytes))
    }

    fn configure(&mut self, config: &[u8; 64]) -> Option<()> {
        *self = Self::RELEASED;
        let palette = config[0];
        if palette == 0 {
            return Some(());
        }
        for (tile, shape) in self.shapes.iter_mut().enumerate() {
            let rows = usize::from(config[48 + tile]);
            let row_bytes =
                usize::from(u16::from_le_bytes([config[16 + 2 * tile], config[17 + 2 * tile]]));
            if rows > 16 || row_bytes > 64 || (rows == 0) != (row_bytes == 0) {
                return None;
            }
            *shape = (rows, row_bytes);
        }
        let mut others = config[1..16].iter().chain(&config[32..48]).chain(&config[56..]);
        (palette == 1 && others.all(|byte| *byte == 0)).then_some(())
    }

    fn load(&mut self, tile: usize, start: u64, stride: u64) -> Option<()> {
        let (rows, row_bytes) = self.shape(tile)?;
        self.tiles[tile] = [[0; 64]; 16];
        for (row, address) in self.tiles[tile][..rows].iter_mut().zip(addresses(start, stride)) {
            let source = ptr::with_exposed_provenance(address);
            // SAFETY: the interrupted instruction reads this memory, so the program guarantees that it can.
            unsafe { ptr::copy_nonoverlapping(source, row.as_mut_ptr(), row_bytes) };
        }
        Some(())
    }

    fn store(&self, tile: usize, start: u64, stride: u64) -> Option<()> {
        let (rows, row_bytes) = self.shape(tile)?;
        for (row, address) in self.tiles[tile][..rows].iter().zip(addresses(start, stride)) {
            let target = ptr::with_exposed_provenance_mut(address);
            // SAFETY: the interrupted instruction writes this memory, so the program guarantees that it can.
            unsafe { ptr::copy_nonoverlapping(row.as_ptr(), target, row_bytes) };
        }
        Some(())
    }

    /// TDPBF16PS in the order of operations of Intel's Software Developer's Manual.
    fn dot_bf16(&mut self, c: usize, a: usize, b: usize) -> Option<()> {
        let [(rows, c_bytes), (a_rows, a_bytes), (b_rows, b_bytes)] =
            [self.shape(c)?, self.shape(a)?, self.shape(b)?];
        let differ = c != a && c != b && a != b;
        let fit = a_rows == rows && a_bytes == 4 * b_rows && b_bytes == c_bytes;
        if !(differ && fit) {
            return None;
        }
        for row in 0..rows {
            for column in 0..c_bytes / 4 {
                let mut sums = [0.0; 2];
                for pair in 0..b_rows {
                    for (half, sum) in sums.iter_mut().enumerate() {
                        let left = bf16(&self.tiles[a][row], 2 * pair + half);
                        let right = bf16(&self.tiles[b][pair], 2 * column + half);
                        *sum = fused(left, right, *sum);
                    }
                }
                let sum = fused(sums[0], 1.0, sums[1]);
                let bytes = &mut self.tiles[c][row][4 * column..][..4];
                let old = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                bytes.copy_from_slice(&fused(old, 1.0, sum).to_le_bytes());
            }
        }
        Some(())
    }
}

/// The addresses of the rows of a tile.
fn addresses(start: u64, stride: u64) -> impl Iterator<Item = usize> {
    (0..).map(move |row| stride.wrapping_mul(row).wrapping_add(start) as usize)
}

/// Number `index` of a row of bf16.
fn bf16(row: &[u8; 64], index: usize) -> f32 {
    f32::from_le_bytes([0, 0, row[2 * index], row[2 * index + 1]])
}

/// `a * b + c` rounded once, to nearest, with subnormal operands and results taken for zero (DAZ and
/// FTZ), for factors of which one has the precision of bf16.
fn fused(a: f32, b: f32, c: f32) -> f32 {
    /// Smaller numbers, rounded to f32 with an unbounded exponent, are below the smallest normal number.
    const TINY: f64 = f32::MIN_POSITIVE as f64 * (1.0 - 1.0 / (1 << 25) as f64);
    let flush = |x: f32| {
        if x.is_subnormal() { 0_f32.copysign(x) } else { x }
    };
    let [a, b, c] = [a, b, c].map(flush);
    // The product is exact, and so is a sum this small.
    let sum = f64::from(a) * f64::from(b) + f64::from(c);
    if sum != 0.0 && sum.abs() < TINY { 0_f32.copysign(sum as f32) } else { a.mul_add(b, c) }
}
