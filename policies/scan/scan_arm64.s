#include "textflag.h"

// Which bit stands for the upper half of a byte in a row of Set, and which for a byte in eight of a mark.
DATA bits<>+0(SB)/8, $0x8040201008040201
DATA bits<>+8(SB)/8, $0
DATA bits<>+16(SB)/8, $0x8040201008040201
DATA bits<>+24(SB)/8, $0x8040201008040201
GLOBL bits<>(SB), RODATA|NOPTR, $32

// MEMBERS sets OUT to the bits of those of the 16 bytes in B that are in the set.
#define MEMBERS(B, OUT) \
	VAND V19.B16, B, OUT         \
	VTBL OUT, [V16.B16], OUT     \
	VUSHR $4, B, V21.B16         \
	VTBL V21.B16, [V17.B16], V21.B16 \
	VAND V21.B16, OUT, OUT       \
	VAND V20.B16, B, V21.B16     \
	VORR V21.B16, OUT, OUT       \
	VCMTST OUT, OUT, OUT         \
	VAND V18.B16, OUT, OUT

// GATHER writes the bits in V4 to V7 as one word, and goes on to the next.
#define GATHER \
	VADDP V5.B16, V4.B16, V4.B16 \
	VADDP V7.B16, V6.B16, V6.B16 \
	VADDP V6.B16, V4.B16, V4.B16 \
	VADDP V4.B16, V4.B16, V4.B16 \
	VMOV V4.D[0], R6             \
	MOVD.P R6, 8(R4)

// func markMembers(rows *[16]byte, beyond uint32, text *byte, blocks int, dst *uint64)
TEXT ·markMembers(SB), NOSPLIT, $0-40
	MOVD rows+0(FP), R0
	MOVWU beyond+8(FP), R1
	MOVD text+16(FP), R2
	MOVD blocks+24(FP), R3
	MOVD dst+32(FP), R4
	MOVD $bits<>(SB), R5
	VLD1 (R0), [V16.B16]
	VLD1 (R5), [V17.B16, V18.B16]
	VMOVI $0x0f, V19.B16
	AND $0x80, R1, R1
	VDUP R1, V20.B16

loop:
	VLD1.P 64(R2), [V0.B16, V1.B16, V2.B16, V3.B16]
	MEMBERS(V0.B16, V4.B16)
	MEMBERS(V1.B16, V5.B16)
	MEMBERS(V2.B16, V6.B16)
	MEMBERS(V3.B16, V7.B16)
	GATHER
	SUB $1, R3, R3
	CBNZ R3, loop
	RET

// LETTER sets OUT to the groups that have a word with the byte in B in this place, whose table is LO and HI.
#define LETTER(OFF, LO, HI, OUT) \
	ADD $(OFF), R2, R6        \
	VLD1 (R6), [V0.B16]       \
	VUSHR $7, V0.B16, V1.B16  \
	VSHL $4, V1.B16, V1.B16   \
	VORR V0.B16, V1.B16, V1.B16 \
	VAND V19.B16, V1.B16, V1.B16 \
	VTBL V1.B16, [LO, HI], OUT

// BEGIN sets OUT to the bits of those of the 16 bytes at OFF from R2 at which a word may begin.
#define BEGIN(OFF, OUT) \
	LETTER(OFF, V24.B16, V25.B16, V2.B16)   \
	LETTER(OFF+1, V26.B16, V27.B16, V3.B16) \
	VAND V3.B16, V2.B16, V2.B16             \
	LETTER(OFF+2, V28.B16, V29.B16, V3.B16) \
	VAND V3.B16, V2.B16, V2.B16             \
	LETTER(OFF+3, V30.B16, V31.B16, V3.B16) \
	VAND V3.B16, V2.B16, V2.B16             \
	VCMTST V2.B16, V2.B16, OUT              \
	VAND V18.B16, OUT, OUT

// func markWords(tables *[4][32]byte, text *byte, blocks int, dst *uint64)
TEXT ·markWords(SB), NOSPLIT, $0-32
	MOVD tables+0(FP), R0
	MOVD text+8(FP), R2
	MOVD blocks+16(FP), R3
	MOVD dst+24(FP), R4
	MOVD $bits<>(SB), R5
	VLD1.P 64(R0), [V24.B16, V25.B16, V26.B16, V27.B16]
	VLD1 (R0), [V28.B16, V29.B16, V30.B16, V31.B16]
	VLD1 (R5), [V17.B16, V18.B16]
	VMOVI $0x1f, V19.B16

loop:
	BEGIN(0, V4.B16)
	BEGIN(16, V5.B16)
	BEGIN(32, V6.B16)
	BEGIN(48, V7.B16)
	GATHER
	ADD $64, R2, R2
	SUB $1, R3, R3
	CBNZ R3, loop
	RET
