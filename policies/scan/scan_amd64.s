#include "textflag.h"

// Which bit stands for the upper half of a byte in a row of Set.
DATA bit<>+0(SB)/8, $0x8040201008040201
DATA bit<>+8(SB)/8, $0x8040201008040201
GLOBL bit<>(SB), RODATA|NOPTR, $16

DATA low<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA low<>+8(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL low<>(SB), RODATA|NOPTR, $16

DATA high<>+0(SB)/8, $0x8080808080808080
DATA high<>+8(SB)/8, $0x8080808080808080
GLOBL high<>(SB), RODATA|NOPTR, $16

// MEMBERS sets R to which of the 32 bytes at P are in the set, and uses T. A shuffle looks up by the lowest four bits of a byte, and finds
// nothing if its highest is set: so the rows are those of ASCII. Of the other bytes, all are in it or none.
#define MEMBERS(P, R, T) \
	VMOVDQU P, Y0           \
	VPSHUFB Y0, Y8, Y1      \
	VPMOVMSKB Y0, T         \
	VPSRLW $4, Y0, Y0       \
	VPAND Y11, Y0, Y0       \
	VPSHUFB Y0, Y10, Y0     \
	VPAND Y0, Y1, Y1        \
	VPCMPEQB Y0, Y1, Y1     \
	VPMOVMSKB Y1, R         \
	ANDL R8, T              \
	ORL T, R

// GATHER writes the two halves of a word, in AX and BX, and goes on to the next.
#define GATHER \
	SHLQ $32, BX            \
	ORQ BX, AX              \
	MOVQ AX, (DI)           \
	ADDQ $64, SI            \
	ADDQ $8, DI

// func markMembers(rows *[16]byte, beyond uint32, text *byte, blocks int, dst *uint64)
TEXT ·markMembers(SB), NOSPLIT, $0-40
	MOVQ rows+0(FP), AX
	MOVL beyond+8(FP), R8
	MOVQ text+16(FP), SI
	MOVQ blocks+24(FP), CX
	MOVQ dst+32(FP), DI
	VBROADCASTI128 (AX), Y8
	VBROADCASTI128 bit<>(SB), Y10
	VBROADCASTI128 low<>(SB), Y11

loop:
	MEMBERS((SI), AX, DX)
	MEMBERS(32(SI), BX, R9)
	GATHER
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET

// LETTER sets OUT to the groups that have a word with the byte at P in this place. LO is half of its table and HI the other: the bit that
// tells them apart becomes the highest, with which a shuffle finds nothing.
#define LETTER(P, LO, HI, OUT) \
	VMOVDQU P, Y0           \
	VPSLLW $3, Y0, Y1       \
	VPAND Y12, Y1, Y1       \
	VPOR Y1, Y0, Y0         \
	VPSHUFB Y0, LO, OUT     \
	VPXOR Y12, Y0, Y0       \
	VPSHUFB Y0, HI, Y0      \
	VPOR Y0, OUT, OUT

// BEGIN sets R to where in the 32 bytes at OFF from SI a word may begin.
#define BEGIN(OFF, R) \
	LETTER((OFF+0)(SI), Y4, Y5, Y2)   \
	LETTER((OFF+1)(SI), Y6, Y7, Y3)   \
	VPAND Y3, Y2, Y2                  \
	LETTER((OFF+2)(SI), Y8, Y9, Y3)   \
	VPAND Y3, Y2, Y2                  \
	LETTER((OFF+3)(SI), Y10, Y14, Y3) \
	VPAND Y3, Y2, Y2                  \
	VPCMPEQB Y13, Y2, Y2              \
	VPMOVMSKB Y2, R                   \
	NOTL R

// func markWords(tables *[4][32]byte, text *byte, blocks int, dst *uint64)
TEXT ·markWords(SB), NOSPLIT, $0-32
	MOVQ tables+0(FP), AX
	MOVQ text+8(FP), SI
	MOVQ blocks+16(FP), CX
	MOVQ dst+24(FP), DI
	VBROADCASTI128 (AX), Y4
	VBROADCASTI128 16(AX), Y5
	VBROADCASTI128 32(AX), Y6
	VBROADCASTI128 48(AX), Y7
	VBROADCASTI128 64(AX), Y8
	VBROADCASTI128 80(AX), Y9
	VBROADCASTI128 96(AX), Y10
	VBROADCASTI128 112(AX), Y14
	VBROADCASTI128 high<>(SB), Y12
	VPXOR Y13, Y13, Y13

loop:
	BEGIN(0, AX)
	BEGIN(32, BX)
	GATHER
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET
