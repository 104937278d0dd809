package units

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settled is when starting is over.
const settled = 2 * time.Second

// Settle has a long-running process give back to the machine what starting it has left behind, once that is over: free
// heap, and its hold on pages of its program. Those that are still needed come back from the page cache, at a minor
// fault each.
func Settle() {
	time.AfterFunc(settled, func() {
		debug.FreeOSMemory()
		_ = unmapProgram() // it is none the worse for keeping them
	})
}

// unmapProgram has no page of the program's code and constants mapped (MADV_DONTNEED of madvise(2)) until it is used.
func unmapProgram() error {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	list, err := constants(f, reflect.ValueOf(unmapProgram).Pointer())
	if err != nil {
		return err
	}
	for _, m := range list {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("unmapping the program's pages: %w", errno)
		}
	}
	return nil
}

type mapping struct {
	from, to uintptr
	path     string
	constant bool // it cannot be written, and is what the file has: a loader may have changed it before
}

// constants returns what of the program that has the instruction is mapped and is as in its file, from
// proc_pid_smaps(5).
func constants(smaps io.Reader, instruction uintptr) ([]mapping, error) {
	var all []mapping
	program := ""
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		var m mapping
		var perms, offset, device, inode string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %s %s %s %s", &m.from, &m.to, &perms, &offset, &device, &inode, &m.path); n >= 6 {
			m.constant = perms[1] == '-'
			if m.from <= instruction && instruction < m.to {
				program = m.path
			}
			all = append(all, m)
		} else if anonymous, ok := strings.CutPrefix(lines.Text(), "Anonymous:"); ok && strings.TrimSpace(anonymous) != "0 kB" && len(all) > 0 {
			all[len(all)-1].constant = false
		}
	}
	if program == "" {
		return nil, fmt.Errorf("no file that is mapped has the instruction at %#x", instruction)
	}
	return slices.DeleteFunc(all, func(m mapping) bool { return m.path != program || !m.constant }), nil
}
