package native

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/itchyny/gojq"
	"golang.org/x/sys/unix"
)

// A program of jq is hostile input: a few letters of it make values without end. So it runs in a process of its own,
// which the kernel holds to these bounds, with nothing but its standard input and output.
const (
	PickVerb = "pick" // the gateway's own program runs as that process with this one argument

	maxProgram = 16 << 10 // bytes
	maxPicked  = 1 << 20  // bytes of input, and of output
	pickMemory = 256 << 20
	pickCPU    = 1               // second of the processor
	pickTime   = 5 * time.Second // by the clock
	pickStack  = 64 << 20
	maxWords   = 300 // bytes of an error
)

// job is what the process reads.
type job struct {
	Program string          `json:"program"`
	Value   json.RawMessage `json:"value"`
}

// answer is what it writes.
type answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

var errCostly = errors.New("the program of jq needs more time or memory than it may have")

// picking bounds how many such processes there are at once.
var picking = make(chan struct{}, 2)

// pick runs a program of jq over a value.
func (n *Nodes) pick(ctx context.Context, program string, value json.RawMessage) (json.RawMessage, error) {
	switch {
	case len(program) > maxProgram:
		return nil, fmt.Errorf("the jq program has %d bytes; the limit is %d", len(program), maxProgram)
	case len(value) > maxPicked:
		return nil, fmt.Errorf("the value has %d bytes, and a program of jq reads at most %d", len(value), maxPicked)
	}
	select {
	case picking <- struct{}{}:
		defer func() { <-picking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	within, cancel := context.WithTimeout(ctx, pickTime)
	defer cancel()
	in, err := json.Marshal(job{program, value})
	if err != nil {
		return nil, fmt.Errorf("reading the value: %w", err)
	}
	cmd := exec.CommandContext(within, n.Picker[0], n.Picker[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin = []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}, "/", bytes.NewReader(in)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out := &bounded{most: 2*maxPicked + maxWords}
	cmd.Stdout = out
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var a answer
	switch {
	case err != nil || out.full:
		return nil, errCostly
	case json.Unmarshal(out.Bytes(), &a) != nil:
		return nil, errors.New("the process that runs programs of jq has a fault")
	case a.Error != "":
		return nil, errors.New(a.Error)
	}
	return a.Value, nil
}

// bounded keeps so many bytes, and then fails.
type bounded struct {
	bytes.Buffer
	most int
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		b.full = true
		return 0, errCostly
	}
	return b.Buffer.Write(p)
}

// RunPick is the process of a program of jq. It returns the code with which the process is to end.
func RunPick(in io.Reader, out io.Writer) int {
	if err := confine(); err != nil {
		return reply(out, answer{Error: "the process that runs programs of jq cannot be held: " + err.Error()})
	}
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return reply(out, answer{Error: "reading the value: " + err.Error()})
	}
	value, err := run(j)
	if err != nil {
		return reply(out, answer{Error: cut(err.Error(), maxWords)})
	}
	return reply(out, answer{Value: value})
}

func reply(out io.Writer, a answer) int {
	if json.NewEncoder(out).Encode(a) != nil {
		return 1
	}
	return 0
}

// confine bounds this process, before it reads anything.
func confine() error {
	size, err := addressSpace()
	if err != nil {
		return err
	}
	debug.SetMaxStack(pickStack)
	debug.SetMemoryLimit(pickMemory / 2)
	return errors.Join(
		limit(unix.RLIMIT_AS, size+pickMemory), limit(unix.RLIMIT_CPU, pickCPU),
		limit(unix.RLIMIT_FSIZE, 0), limit(unix.RLIMIT_CORE, 0),
	)
}

func limit(what int, most uint64) error {
	return unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most})
}

// addressSpace is how much of it this process has reserved by now, in bytes (proc_pid_statm(5)).
func addressSpace() (uint64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	pages, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.ParseUint(pages, 10, 64)
	return n * uint64(os.Getpagesize()), err
}

// run runs a program. One result is itself, several are an array, none is an error.
func run(j job) (json.RawMessage, error) {
	query, err := gojq.Parse(j.Program)
	if err != nil {
		return nil, fmt.Errorf("reading the program of jq: %w", err)
	}
	code, err := gojq.Compile(query) // without modules, variables of the environment and further inputs
	if err != nil {
		return nil, fmt.Errorf("reading the program of jq: %w", err)
	}
	var value any
	if len(j.Value) > 0 {
		d := json.NewDecoder(bytes.NewReader(j.Value))
		d.UseNumber()
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("reading the value: %w", err)
		}
	}
	var all [][]byte
	size := 0
	for results := code.Run(value); ; {
		result, more := results.Next()
		if !more {
			break
		}
		if err, failed := result.(error); failed { // its end repeats a part of the value, in brackets
			words, _, _ := strings.Cut(err.Error(), " (")
			return nil, fmt.Errorf("the program of jq: %s", words)
		}
		b, err := gojq.Marshal(result)
		if err != nil {
			return nil, fmt.Errorf("the program of jq: %w", err)
		}
		if size += len(b) + 1; size > maxPicked {
			return nil, fmt.Errorf("the program of jq gives more than %d bytes", maxPicked)
		}
		all = append(all, b)
	}
	return joined(all)
}

func joined(all [][]byte) (json.RawMessage, error) {
	switch len(all) {
	case 0:
		return nil, errors.New("the program of jq gives nothing")
	case 1:
		return all[0], nil
	}
	return append(append([]byte{'['}, bytes.Join(all, []byte{','})...), ']'), nil
}
