package sandbox

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/bpf"
)

// struct seccomp_data of seccomp(2). Both machines are little endian: the low half of an argument comes first.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// Actions of seccomp(2), and error numbers, which are the same on both machines.
const (
	actionKill  = 0x8000_0000 // SECCOMP_RET_KILL_PROCESS
	actionErrno = 0x0005_0000
	actionAllow = 0x7fff_0000

	errnoNone            = 0 // the call returns 0 and does nothing
	errnoEPERM           = 1
	errnoENOSYS          = 38
	errnoEPROTONOSUPPORT = 93
	errnoEOPNOTSUPP      = 95
	errnoEAFNOSUPPORT    = 97
)

// machine is what the kernel calls an architecture, and which column of the table is its.
type machine struct {
	audit  uint32 // AUDIT_ARCH_*, linux/audit.h
	number func(systemCall) int
}

// Seccomp returns the filter for a server on goarch, as bwrap's --seccomp reads it: an array of struct sock_filter.
func Seccomp(goarch string) ([]byte, error) { return assemble(goarch, refused(), inspected()) }

func assemble(goarch string, refused []systemCall, inspected []inspection) ([]byte, error) {
	program, err := filter(goarch, refused, inspected)
	if err != nil {
		return nil, err
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assembling the system call filter: %w", err)
	}
	var b []byte
	for _, i := range raw {
		b = binary.LittleEndian.AppendUint16(b, i.Op)
		b = append(b, i.Jt, i.Jf)
		b = binary.LittleEndian.AppendUint32(b, i.K)
	}
	return b, nil
}

func filter(goarch string, refused []systemCall, inspected []inspection) ([]bpf.Instruction, error) {
	var m machine
	switch goarch {
	case "amd64":
		m = machine{0xc000_003e, func(s systemCall) int { return s.amd64 }}
	case "arm64":
		m = machine{0xc000_00b7, func(s systemCall) int { return s.arm64 }}
	default:
		return nil, fmt.Errorf("no table of system calls for %q", goarch)
	}
	program := []bpf.Instruction{
		// The numbers of another interface (int 0x80, AArch32) mean other calls.
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: m.audit, SkipTrue: 1},
		bpf.RetConstant{Val: actionKill},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		// x32 has bit 30 set. Calls newer than this table may do what older ones are refused for; programs have
		// to expect ENOSYS from them.
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: newest, SkipTrue: 1},
		refuse(errnoENOSYS),
	}
	for _, s := range refused {
		if n := m.number(s); n >= 0 {
			program = append(program, when(n, refuse(s.errno))...)
		}
	}
	for _, s := range inspected {
		if n := m.number(s.systemCall); n >= 0 {
			program = append(program, when(n, s.body...)...)
		}
	}
	return append(program, allow()), nil
}

// when runs body, which has to end in a return, for system call n.
func when(n int, body ...bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(n), SkipFalse: uint8(len(body))}}, body...)
}

func refuse(errno uint32) bpf.Instruction { return bpf.RetConstant{Val: actionErrno | errno} }

func allow() bpf.Instruction { return bpf.RetConstant{Val: actionAllow} }

// argument loads the low 32 bits of one: the kernel ignores the rest of each argument that is looked at here
// (CVE-2019-10063).
func argument(i uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offsetArgs + 8*i, Size: 4} }

func equal(v uint32, skip uint8) bpf.Instruction {
	return bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: skip}
}
