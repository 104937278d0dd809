package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-sandbox/bubblewrap"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/question"
)

// inspectArg has this binary run an inspector of the owner's: each connection to the socket that it was passed is one
// process in a sandbox of its own, which no network leads out of. It reads what the connection says to its end, and all
// that it writes is the answer.
const inspectArg = "inspect"

const (
	maxVerdict   = 64 << 10 // bytes of an answer; a longer one is none
	maxComplaint = 2 << 10  // bytes of stderr that are logged
)

// examiner runs one.
type examiner struct {
	plan.Inspection
	bwrap   string
	network bubblewrap.Network
	forks   chan chan<- started // sandboxes to be started
}

type started struct {
	*bubblewrap.Process
	err error
}

// inspectors answers connections until there are none for a while or ctx is done.
func inspectors(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if err := bubblewrap.KeepMemory(); err != nil {
		return err
	}
	i := examiner{network: o.network(egress.Policy{}), forks: make(chan chan<- started)}
	raw, err := units.Credential("plan")
	if err == nil {
		err = json.Unmarshal(raw, &i.Inspection)
	}
	if err == nil {
		i.Inspector, err = i.Inspector.Declared()
	}
	if err != nil {
		return fmt.Errorf("reading the plan: %w", err)
	}
	if i.bwrap, err = bubblewrap.Find(); err != nil {
		return err
	}
	l, err := question.Listener()
	if err != nil {
		return err
	}
	go i.fork()
	return question.Server{
		Parallel: i.Inspector.Parallel, Timeout: i.Inspector.Timeout, Answer: i.answer,
		// Whoever asks gets no answer, which is none that is clean.
		Failed: func(err error) {
			fmt.Fprintf(os.Stderr, "pfar-sandbox: inspector %s: %v\n", i.Inspector.Name, err)
		},
	}.Serve(ctx, l)
}

// fork starts sandboxes on one thread that never ends: the kernel kills them when it does (prctl(2), PR_SET_PDEATHSIG).
func (i *examiner) fork() {
	runtime.LockOSThread()
	for done := range i.forks {
		s, err := bubblewrap.Start(i.bwrap, i.Sandbox, i.network, bubblewrap.IDs{}, units.Secrets{})
		done <- started{s, err}
	}
}

// answer has one process answer one question.
func (i *examiner) answer(ctx context.Context, question []byte) ([]byte, error) {
	done := make(chan started, 1)
	i.forks <- done
	s := <-done
	if s.err != nil {
		return nil, s.err
	}
	stop := context.AfterFunc(ctx, s.End) // and with it all of the sandbox
	defer stop()
	return i.converse(s.Process, question)
}

// converse lets the process go, tells it the question, and returns what it has said once it has ended well.
func (i *examiner) converse(s *bubblewrap.Process, question []byte) (verdict []byte, err error) {
	defer s.Close() // it lives for one question
	sockets, err := s.Sockets()
	attach.CloseAll(sockets) // nobody answers there
	if err == nil {          // all that it starts inherits this
		memory := uint64(i.Inspector.Memory)
		if err = unix.Prlimit(s.PID(), unix.RLIMIT_DATA, &unix.Rlimit{Cur: memory, Max: memory}, nil); err != nil {
			err = fmt.Errorf("limiting its memory: %w", err)
		}
	}
	if err == nil {
		err = s.Release()
	}
	if err != nil {
		s.Kill()
		return nil, err
	}
	go func() {
		_, _ = s.Stdin.Write(question) // it may end without reading it
		s.Stdin.Close()
	}()
	complaint := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(s.Stderr, maxComplaint))
		complaint <- strings.TrimSpace(string(b))
		_, _ = io.Copy(io.Discard, s.Stderr)
	}()
	verdict, err = io.ReadAll(io.LimitReader(s.Stdout, maxVerdict+1))
	if len(verdict) > maxVerdict {
		err = fmt.Errorf("an answer of more than %d bytes", maxVerdict)
	}
	if err != nil {
		s.End()
	}
	if exit := <-s.Exited(); exit != nil && err == nil {
		err = fmt.Errorf("%s: %.*q", bubblewrap.ExitWords(exit), maxComplaint, <-complaint)
	}
	return verdict, err
}
