package bed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Machine is one systemd with all that it runs, with a root file system that is its own and goes with it.
type Machine struct {
	bed      *Bed
	guardian *exec.Cmd
	lifeline *os.File
	control  *os.File
	console  *os.File // unlinked
	group    string   // of the machine, as the host has it
	mu       sync.Mutex
	leader   int // PID 1, as the host has it
}

// Boot boots a machine for one test. It goes when the test ends, and a test that failed logs its console and its
// journal. A race that the detector has told the journal of fails the test.
func (b *Bed) Boot(t testing.TB) *Machine {
	t.Helper()
	m, err := b.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Try("journalctl", "--sync")
		if races := m.Try("journalctl", "--quiet", "--no-pager", "--output=cat", "--grep=^WARNING: DATA RACE").Stdout; races != "" {
			t.Error("a program has a data race")
		}
		if t.Failed() {
			t.Logf("console:\n%s\njournal:\n%s", m.Console(), m.Try("journalctl", "--no-pager", "--lines=200", "--output=short-monotonic").Stdout)
		}
		if err := m.Close(); err != nil {
			t.Errorf("taking the machine away: %v", err)
		}
	})
	return m
}

// Start boots a machine. Whoever does so closes it.
func (b *Bed) Start() (*Machine, error) {
	m := &Machine{bed: b}
	if err := m.startGuardian(); err != nil {
		return nil, fmt.Errorf("making a machine: %w", err)
	}
	if err := m.On(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w; console:\n%s", err, m.Console()), m.Close())
	}
	return m, nil
}

func (m *Machine) startGuardian() error {
	var err error
	if m.console, err = os.CreateTemp("", "pfar-bed-console-"); err != nil {
		return err
	}
	if err := os.Remove(m.console.Name()); err != nil {
		return err
	}
	lifeline, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer lifeline.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	m.lifeline, m.control = ours, os.NewFile(uintptr(pair[0]), "control")
	cmd := exec.Command("/proc/self/exe", groupName(m.bed.cgroups, os.Getpid(), ""), m.bed.layers())
	cmd.Env = append(os.Environ(), roleVariable+"="+roleGuardian, gorace)
	cmd.ExtraFiles = []*os.File{lifeline, theirs, m.console}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what a terminal interrupts is the test
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the guardian: %w", err)
	}
	m.guardian = cmd
	m.group = filepath.Join(groupName(m.bed.cgroups, os.Getpid(), strconv.Itoa(cmd.Process.Pid)), machineGroup)
	return nil
}

// ask has the keeper do something.
func (m *Machine) ask(r request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := json.NewEncoder(m.control).Encode(r); err != nil {
		return fmt.Errorf("asking the keeper: %w", err)
	}
	var a answer
	if err := json.NewDecoder(m.control).Decode(&a); err != nil {
		return fmt.Errorf("waiting for the keeper: %w", err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// On boots the machine with the root that it has, and returns when its systemd has nothing left to start.
func (m *Machine) On() error {
	if err := m.ask(request{Boot: true}); err != nil {
		return err
	}
	procs, err := os.ReadFile(filepath.Join(m.group, "payload/init.scope/cgroup.procs"))
	if err != nil {
		return fmt.Errorf("finding the machine's PID 1: %w", err)
	}
	for _, word := range strings.Fields(string(procs)) {
		status, _ := os.ReadFile("/proc/" + word + "/status") // another of them may have ended
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "NSpid:") && strings.HasSuffix(strings.TrimSpace(line), "\t1") {
				if m.leader, err = strconv.Atoi(word); err != nil {
					return err
				}
			}
		}
	}
	if m.leader == 0 {
		return fmt.Errorf("finding the machine's PID 1: init.scope has only %q", procs)
	}
	// What the test runs in the machine belongs to a cgroup of it, but to no unit.
	if err := os.Mkdir(filepath.Join(m.group, "payload", testGroup), 0o755); err != nil {
		return fmt.Errorf("making the cgroup of the test's programs: %w", err)
	}
	return nil
}

// testGroup has the programs that the test runs in the machine.
const testGroup = "bed"

// Reboot has the machine shut down in good order and boots it again with the same root.
func (m *Machine) Reboot(t testing.TB) {
	t.Helper()
	m.Off(t)
	if err := m.On(); err != nil {
		t.Fatal(err)
	}
}

// Off has the machine shut down in good order. On boots it again.
func (m *Machine) Off(t testing.TB) {
	t.Helper()
	if r := m.Try("systemctl", "poweroff"); r.Code > 0 { // below it, systemd was faster than systemctl
		t.Fatalf("powering off: %s", r)
	}
	m.leader = 0
	if err := m.ask(request{Wait: true}); err != nil {
		t.Fatal(err)
	}
}

// PowerCut kills all that runs in the machine at once. What had been written stays, synced or not: where that matters,
// see tests/vm.
func (m *Machine) PowerCut(t testing.TB) {
	t.Helper()
	m.leader = 0
	if err := m.ask(request{Kill: true}); err != nil {
		t.Fatal(err)
	}
}

// Leader is the PID that the host has for the machine's PID 1.
func (m *Machine) Leader() int { return m.leader }

// Cgroup is the directory that the host has for the machine's own /sys/fs/cgroup.
func (m *Machine) Cgroup() string { return filepath.Join(m.group, "payload") }

// Console is the end of what the machine's console has shown: which units failed, or what a boot waits for.
func (m *Machine) Console() string {
	const most = 4000
	var from int64
	if st, err := m.console.Stat(); err == nil {
		from = max(0, st.Size()-most)
	}
	text, _ := io.ReadAll(io.NewSectionReader(m.console, from, most))
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// Close takes the machine away, whatever it is doing, and returns when nothing is left of it.
func (m *Machine) Close() error {
	m.leader = 0
	err := errors.Join(m.lifeline.Close(), m.control.Close(), m.guardian.Wait(), m.console.Close())
	return errors.Join(err, removeCgroup(filepath.Dir(m.group)))
}
