// Command stalls runs a command and stops processes below it at random, as a machine does that has too much to do.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	every := flag.Duration("every", 200*time.Millisecond, "mean time between two stops")
	seed := flag.Uint64("seed", rand.Uint64(), "seed of what is stopped, when and for how long")
	flag.Parse()
	code, err := run(flag.Args(), *every, *seed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stalls:", err)
		code = 1
	}
	os.Exit(code)
}

// run runs a command and returns its exit code.
func run(args []string, every time.Duration, seed uint64) (code int, err error) {
	if len(args) == 0 {
		return 0, fmt.Errorf("usage: stalls [--every DURATION] [--seed N] COMMAND [ARGUMENT...]")
	}
	// What a test leaves without a parent stays below this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("becoming the parent of orphans: %w", err)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting %q: %w", args[0], err)
	}
	ended := make(chan syscall.WaitStatus, 1)
	go reap(cmd.Process.Pid, ended)
	fmt.Printf("stalls: seed %d\n", seed)
	var status syscall.WaitStatus
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case status = <-ended:
				return
			case s := <-interrupted:
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	stops := stall(rand.New(rand.NewPCG(seed, 0)), every, over)
	fmt.Printf("stalls: stopped processes %d times\n", stops)
	switch {
	case status.Signaled():
		return 0, fmt.Errorf("%q: %s", args[0], status.Signal())
	case stops == 0:
		return 0, fmt.Errorf("%q ended before a process was stopped", args[0])
	}
	return status.ExitStatus(), nil
}

// reap waits for the command and for every orphan that ends before it: a test may look for what it has left.
func reap(command int, ended chan<- syscall.WaitStatus) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if pid == command {
			ended <- status
			return
		}
		if err != nil && err != syscall.EINTR {
			panic(err) // the command is a child
		}
	}
}

// stall stops processes until the command is over, lets all of them go on, and returns how often it stopped one.
func stall(random *rand.Rand, every time.Duration, over <-chan struct{}) (stops int) {
	var stopped sync.WaitGroup
	defer stopped.Wait()
	for {
		select {
		case <-over:
			return stops
		case <-time.After(time.Duration(2 * random.Float64() * float64(every))):
		}
		list := below(os.Getpid())
		if len(list) == 0 {
			continue
		}
		p := list[random.IntN(len(list))]
		long := time.Second + time.Duration(random.Int64N(int64(2*time.Second)))
		if !p.signal(syscall.SIGSTOP) {
			continue
		}
		stops++
		stopped.Go(func() {
			select {
			case <-over:
			case <-time.After(long):
			}
			p.signal(syscall.SIGCONT)
		})
	}
}

// process is one process, also when its number has become another's.
type process struct {
	pid     int
	started string
}

// signal sends a signal to a process that is still there.
func (p process) signal(s syscall.Signal) bool {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if now, _, ok := stat(p.pid); !ok || now.started != p.started {
		return false
	}
	return unix.PidfdSendSignal(fd, s, nil, 0) == nil
}

// toolchain are the programs that build the tests: a stopped one shows nothing.
var toolchain = []string{"go", "compile", "link", "asm", "vet", "cgo", "make", "gcc", "cc1", "as", "collect2", "ld"}

// below lists the processes below one that are not of the toolchain.
func below(top int) []process {
	children := map[int][]process{}
	names := map[int]string{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, e := range entries {
		pid, _ := strconv.Atoi(filepath.Base(e))
		if p, s, ok := stat(pid); ok {
			children[s.parent], names[pid] = append(children[s.parent], p), s.name
		}
	}
	var list []process
	for queue := []int{top}; len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			queue = append(queue, c.pid)
			if !slices.Contains(toolchain, names[c.pid]) {
				list = append(list, c)
			}
		}
	}
	return list
}

type status struct {
	name   string
	parent int
}

// stat reads /proc/PID/stat: "PID (NAME) STATE PPID ... STARTTIME ..." (proc(5)), where the name may have anything in
// it.
func stat(pid int) (process, status, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, status{}, false
	}
	text := string(b)
	open, closed := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || closed < open {
		return process{}, status{}, false
	}
	fields := strings.Fields(text[closed+1:])
	if len(fields) < 20 || fields[0] == "Z" {
		return process{}, status{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	return process{pid, fields[19]}, status{text[open+1 : closed], parent}, err == nil
}
