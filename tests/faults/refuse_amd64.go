package faults

import "golang.org/x/sys/unix"

// refuses says that calls can be refused on this processor.
const refuses = true

// skip has a thread that begins a call make none.
func skip(tid int) {
	change(tid, func(r *unix.PtraceRegs) { r.Orig_rax = 1<<64 - 1 }) // no call has this number
}

// answer has a thread that ends a call see an error.
func answer(tid int, errno unix.Errno) {
	change(tid, func(r *unix.PtraceRegs) { r.Rax = -uint64(errno) })
}

func change(tid int, how func(*unix.PtraceRegs)) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) == nil { // it may have been killed
		how(&regs)
		_ = unix.PtraceSetRegs(tid, &regs)
	}
}
