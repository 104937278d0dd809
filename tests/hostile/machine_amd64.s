#include "textflag.h"

// func interrupt(number uint32) int32
TEXT ·interrupt(SB), NOSPLIT, $0-12
	MOVL	number+0(FP), AX
	INT	$0x80
	MOVL	AX, ret+8(FP)
	RET
