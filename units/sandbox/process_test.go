package sandbox

import "testing"

func TestProcess(t *testing.T) {
	const namespaces = 0x1000_0000 // CLONE_NEWUSER
	for name, c := range map[string]struct {
		number       uint32
		argument     uint64
		other, maker uint32
	}{
		"ptrace":                {101, 0, 0x5_0000 | 1, 0x5_0000 | 1},
		"bpf":                   {321, 0, 0x5_0000 | 1, 0x5_0000 | 1},
		"io_uring_setup":        {425, 0, 0x5_0000 | 1, 0x5_0000 | 1},
		"keyctl":                {250, 0, 0x5_0000 | 1, 0x5_0000 | 1},
		"process_vm_readv":      {310, 0, 0x5_0000 | 1, 0x5_0000 | 1},
		"x32":                   {0x4000_0000, 0, 0x5_0000 | 38, 0x5_0000 | 38},
		"mount":                 {165, 0, 0x5_0000 | 1, 0x7fff_0000},
		"unshare":               {272, 0, 0x5_0000 | 1, 0x7fff_0000},
		"a user namespace":      {56, namespaces, 0x5_0000 | 1, 0x7fff_0000},
		"a thread":              {56, 0x0001_0000, 0x7fff_0000, 0x7fff_0000},
		"read":                  {0, 0, 0x7fff_0000, 0x7fff_0000},
		"any socket":            {41, 16, 0x7fff_0000, 0x7fff_0000},
		"a limit on core files": {160, 4, 0x7fff_0000, 0x7fff_0000},
	} {
		for makes, want := range map[bool]uint32{false: c.other, true: c.maker} {
			program, err := Process("amd64", makes)
			if err != nil {
				t.Fatal(err)
			}
			got, err := run(program, call{number: c.number, arch: archAMD64, args: [6]uint64{c.argument}}.data())
			if err != nil || got != want {
				t.Errorf("%s, makes sandboxes %v: %#x, %v; want %#x", name, makes, got, err, want)
			}
		}
	}
	if _, err := Process("riscv64", true); err == nil {
		t.Error("there is a filter for a machine without a table")
	}
}
