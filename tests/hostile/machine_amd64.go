package main

import (
	"os"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

// System call number bits and numbers of the two other interfaces that an amd64 kernel may have.
const (
	x32Bit      = 0x40000000
	i386Getpid  = 20
	i386Limit   = -4096 // results above are error numbers
	x32GetpidNr = unix.SYS_GETPID | x32Bit
)

// interrupt makes an i386 system call: its numbers mean other calls than the filter may think of.
func interrupt(number uint32) int32

func machineAttacks() list {
	return list{
		{Name: "i386", Kind: "other ABI", try: func(string) (v verdict) {
			// A kernel that runs in a confidential machine (SEV, TDX) takes no such interrupt, and the program faults.
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() {
				if fault := recover(); fault != nil {
					v = blocked("int 0x80 is not supported: %v", fault)
				}
			}()
			result := interrupt(i386Getpid)
			if result < 0 && result > i386Limit {
				return blocked("%v", syscall.Errno(-result))
			}
			if int(result) != os.Getpid() {
				return blocked("getpid returned %d", result)
			}
			return succeeded("getpid returned %d", result)
		}},
		{Name: "x32", Kind: "other ABI", try: func(string) verdict {
			pid, _, e := unix.RawSyscall(x32GetpidNr, 0, 0, 0)
			if e != 0 {
				return blocked("%v", e)
			}
			return succeeded("getpid returned %d", pid)
		}},
	}
}
