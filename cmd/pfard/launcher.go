package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/pfar/pfar/units"
)

// outdated says that a launcher runs a program that an upgrade has replaced, and what gives the server the new one. An
// upgrade itself ends no server.
func outdated(name string, pid int) string {
	if pid == 0 {
		return ""
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || !strings.HasSuffix(program, " (deleted)") { // proc(5)
		return ""
	}
	return fmt.Sprintf("runs under the launcher of another version, pfar is %s: pfar restart %s", units.Version(), name)
}
