package sandbox

import (
	"slices"

	"golang.org/x/net/bpf"
)

// What arguments are compared with.
const (
	// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. CLONE_NEWTIME cannot be given to clone(2).
	cloneNamespaces = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000

	ioctlTIOCSTI   = 0x5412
	ioctlTIOCLINUX = 0x541c
	ioctlTIOCSETD  = 0x5423

	personalityLinux = 0
	personalityQuery = 0xffff_ffff

	prctlPDEATHSIG = 1 // PR_SET_PDEATHSIG
	signalKILL     = 9

	familyUnix    = 1
	familyInet    = 2
	familyInet6   = 10
	familyNetlink = 16
	netlinkRoute  = 0

	socketType     = 0xf // the rest of that argument are flags
	socketStream   = 1
	socketDatagram = 2
	protocolAny    = 0 // the type's own
	protocolTCP    = 6
	protocolUDP    = 17

	modeSetID   = 0o6000              // S_ISUID, S_ISGID
	openCreates = 0o100 | 0o2000_0000 // O_CREAT, __O_TMPFILE
	readNoWait  = 8                   // RWF_NOWAIT
	adviceDrop  = 4                   // POSIX_FADV_DONTNEED
	limitCore   = 4                   // RLIMIT_CORE
)

// inspection is a system call that depends on its arguments.
type inspection struct {
	systemCall
	body []bpf.Instruction
}

func inspected() []inspection {
	return slices.Concat([]inspection{
		{systemCall{name: "clone", amd64: 56, arm64: 220}, []bpf.Instruction{ // its maker has every capability in a namespace
			argument(0), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: cloneNamespaces, SkipTrue: 1}, allow(), refuse(errnoEPERM),
		}},
		// A line discipline is kernel code that is loaded for whoever asks, and where many holes were found (n_hdlc, n_gsm).
		{systemCall{name: "ioctl", amd64: 16, arm64: 29}, []bpf.Instruction{ // TIOCSTI pushes characters into a terminal
			argument(1), equal(ioctlTIOCSTI, 3), equal(ioctlTIOCLINUX, 2), equal(ioctlTIOCSETD, 1), allow(), refuse(errnoEPERM),
		}},
		{systemCall{name: "personality", amd64: 135, arm64: 92}, []bpf.Instruction{ // no address randomisation, executable data
			argument(0), equal(personalityLinux, 2), equal(personalityQuery, 1), refuse(errnoEPERM), allow(),
		}},
		// bwrap's --die-with-parent is all that ends the sandbox after a kill -9 of pfar. A server may write its pid
		// 1's memory (/proc/1/mem: same user, same capabilities), and must not have it forget that signal.
		{systemCall{name: "prctl", amd64: 157, arm64: 167}, []bpf.Instruction{
			argument(0), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: prctlPDEATHSIG, SkipTrue: 3},
			argument(1), equal(signalKILL, 1), refuse(errnoEPERM), allow(),
		}},
		{systemCall{name: "socket", amd64: 41, arm64: 198}, socketBody()},
		{systemCall{name: "socketpair", amd64: 53, arm64: 199}, []bpf.Instruction{
			argument(0), equal(familyUnix, 1), refuse(errnoEAFNOSUPPORT), allow(),
		}},
	}, setID(), coreLimit(), pageCache())
}

// socketBody allows few families: the others are rarely used code of the kernel, or reach its other parts. Of the
// internet it allows TCP and UDP alone, not MPTCP, UDP-Lite, SCTP or ping. Of netlink it allows routing messages alone:
// getifaddrs(3) asks by them, and node's os.networkInterfaces() throws without.
func socketBody() []bpf.Instruction {
	protocol := func(own uint32) []bpf.Instruction {
		return []bpf.Instruction{
			argument(2), equal(protocolAny, 2), equal(own, 1), refuse(errnoEPROTONOSUPPORT), allow(),
		}
	}
	return slices.Concat([]bpf.Instruction{
		argument(0), equal(familyUnix, 6), equal(familyInet, 6), equal(familyInet6, 5),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: familyNetlink, SkipTrue: 2},
		argument(2), equal(netlinkRoute, 1),
		refuse(errnoEAFNOSUPPORT), allow(),

		argument(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: socketType},
		equal(socketStream, 2), equal(socketDatagram, 6), refuse(errnoEPROTONOSUPPORT),
	}, protocol(protocolTCP), protocol(protocolUDP))
}

// setID refuses every mode with a set-user-ID or set-group-ID bit. Such a file in a folder that the host also has would
// run as the server's user for anybody there. systemd's RestrictSUIDSGID= does the same, and takes openat2(2) from
// bubblewrap with it; that is why the filter, which bubblewrap does not run under, has it.
func setID() []inspection {
	var all []inspection
	for _, s := range []struct {
		call systemCall
		mode uint32 // which argument it is
	}{
		{systemCall{name: "chmod", amd64: 90, arm64: none}, 1},
		{systemCall{name: "fchmod", amd64: 91, arm64: 52}, 1},
		{systemCall{name: "fchmodat", amd64: 268, arm64: 53}, 2},
		{systemCall{name: "fchmodat2", amd64: 452, arm64: 452}, 2},
		{systemCall{name: "creat", amd64: 85, arm64: none}, 1},
		{systemCall{name: "mknod", amd64: 133, arm64: none}, 1},
		{systemCall{name: "mknodat", amd64: 259, arm64: 33}, 2},
	} {
		all = append(all, inspection{s.call, modeBody(s.mode)})
	}
	for _, s := range []struct {
		call  systemCall
		flags uint32
	}{
		{systemCall{name: "open", amd64: 2, arm64: none}, 1},
		{systemCall{name: "openat", amd64: 257, arm64: 56}, 2},
	} {
		// Without these flags there is no mode, and its register holds anything.
		body := []bpf.Instruction{
			argument(s.flags), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: openCreates, SkipTrue: 1}, allow(),
		}
		all = append(all, inspection{s.call, append(body, modeBody(s.flags+1)...)})
	}
	return all
}

func modeBody(i uint32) []bpf.Instruction {
	return []bpf.Instruction{
		argument(i), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: modeSetID, SkipTrue: 1}, allow(), refuse(errnoEPERM),
	}
}

// coreLimit leaves RLIMIT_CORE as the launcher has set it: with 0 in the place of 1 the kernel would pipe a core, with
// the server's secrets, to the program of core_pattern (units.NoCore). The calls say that they succeeded: there is no
// core, as whoever sets 0 wants it, and gpg for one ends if it gets an error.
func coreLimit() []inspection {
	word := func(i uint32) bpf.LoadAbsolute { return bpf.LoadAbsolute{Off: offsetArgs + 4*i, Size: 4} }
	return []inspection{
		{systemCall{name: "setrlimit", amd64: 160, arm64: 164}, []bpf.Instruction{
			argument(0), equal(limitCore, 1), allow(), refuse(errnoNone),
		}},
		{systemCall{name: "prlimit64", amd64: 302, arm64: 261}, []bpf.Instruction{
			argument(1), equal(limitCore, 1), allow(),
			word(4), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 3}, // the new limit's address: none only asks
			word(5), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1}, allow(),
			refuse(errnoNone),
		}},
	}
}

// pageCache keeps the memory that holds files' content, which all sandboxes share, from being emptied and looked into:
// what one drops another would see missing. How long a read takes still tells something.
func pageCache() []inspection {
	return []inspection{
		{systemCall{name: "preadv2", amd64: 327, arm64: 286}, []bpf.Instruction{
			argument(5), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: readNoWait, SkipTrue: 1}, allow(), refuse(errnoEOPNOTSUPP),
		}},
		{systemCall{name: "fadvise64", amd64: 221, arm64: 223}, []bpf.Instruction{ // advice may be ignored
			argument(3), equal(adviceDrop, 1), allow(), refuse(errnoNone),
		}},
	}
}
