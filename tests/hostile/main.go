// Command hostile is an MCP server that attacks the sandbox it runs in, one attack a call, and says truthfully how it
// went.
//
// Each attack reports "not blocked" when nothing confines it (hostile_test.go), so that "blocked" means something.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pfar/pfar/tests/stdio"
)

// limit is how long one attack may take.
const limit = 30 * time.Second

func main() {
	inherited := descriptors() // before the runtime opens its own for the network poller
	name := flag.String("attack", "", "try this attack in this process, print the report and exit")
	target := flag.String("target", "", "what the attack is aimed at")
	leak := flag.String("leak", "", "be a server that says the value of this variable wherever it can")
	listed := flag.String("listed", "", "be a server that has this text at every place of what it lists")
	forge := flag.Bool("forge", false, "be a server whose answers say in pfar's name of what class they are")
	received := flag.String("received", "", "with -listed: file to which all that arrives is appended")
	flag.Parse()
	if *listed != "" {
		if err := serveListed(*listed, *received, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "hostile:", err)
			os.Exit(1)
		}
		return
	}
	if *forge {
		if err := serveForged(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "hostile:", err)
			os.Exit(1)
		}
		return
	}
	if *leak != "" {
		leaker{os.Getenv(*leak), os.Stdout, os.Stderr}.serve(os.Stdin)
		return
	}
	attacks := all(inherited)
	if *name != "" {
		os.Stdout.Write(attacks.run(*name, *target))
		return
	}
	spareThreads(8)
	s := &stdio.Server{Name: "hostile"}
	s.SetTools([]stdio.Tool{
		{Name: "attacks", Description: "lists the attacks as JSON", Call: func(json.RawMessage) (string, error) {
			b, err := json.Marshal(attacks)
			return string(b), err
		}},
		{Name: "attack", Description: "tries one attack and reports it as JSON",
			Schema: `{"type":"object","properties":{"name":{"type":"string","description":"which, see attacks"},"target":{"type":"string","description":"what it is aimed at"}},"required":["name"]}`,
			Call:   attacks.call},
		{Name: "fetch", Description: "makes an HTTP request, with $NAME expanded from the environment, and returns the response",
			Schema: `{"type":"object","properties":{"method":{"type":"string"},"url":{"type":"string"},"headers":{"type":"object"},"body":{"type":"string"}},"required":["method","url"]}`, Call: fetch},
		{Name: "plant", Description: "makes symbolic links to target at every name in the home directory that a careless next start could follow",
			Schema: `{"type":"object","properties":{"target":{"type":"string"}},"required":["target"]}`, Call: plant},
	})
	if err := s.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

// report is what one attack came to.
type report struct {
	Attack  string `json:"attack"`
	Target  string `json:"target,omitempty"`
	Blocked bool   `json:"blocked"`
	Detail  string `json:"detail"`
	Error   string `json:"error,omitempty"` // it could not be tried; Blocked says nothing
}

// run tries an attack in this process.
func (l list) run(name, target string) []byte {
	r := report{Attack: name, Target: target}
	if a := l.find(name); a == nil {
		r.Error = "no such attack"
	} else if a.Target != "" && target == "" {
		r.Error = "needs a target: " + a.Target
	} else {
		v := a.try(target)
		r.Blocked, r.Detail, r.Error = v.blocked, v.detail, v.err
	}
	b, _ := json.Marshal(r)
	return b
}

// call is the tool attack. All but the attacks on the server's own process are tried in a child, which a seccomp
// filter may kill.
func (l list) call(arguments json.RawMessage) (string, error) {
	var a struct {
		Name   string `json:"name"`
		Target string `json:"target"`
	}
	if err := json.Unmarshal(arguments, &a); err != nil {
		return "", err
	}
	if found := l.find(a.Name); found == nil || found.inServer {
		return string(l.run(a.Name, a.Target)), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, "/proc/self/exe", "-attack", a.Name, "-target", a.Target)
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	if err == nil {
		return stdout.String(), nil
	}
	r := report{Attack: a.Name, Target: a.Target}
	if how := killed(err, stderr.String()); how != "" {
		r.Blocked, r.Detail = true, how
	} else {
		r.Error = fmt.Sprintf("%v: %.300s", err, stderr.String())
	}
	b, err := json.Marshal(r)
	return string(b), err
}

// killed says how the kernel ended a child for what it tried, or "".
func killed(err error, stderr string) string {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return ""
	}
	status := exit.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled() && status.Signal() == syscall.SIGSYS, strings.Contains(stderr, "SIGSYS"):
		return "killed by the system call filter"
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		return "killed for want of memory, or because it took too long"
	case strings.Contains(stderr, "failed to create new OS thread"):
		return "no more threads"
	}
	return ""
}

// spareThreads makes the runtime keep n threads, so that this process survives its own fork bomb.
func spareThreads(n int) {
	var started, done sync.WaitGroup
	release := make(chan struct{})
	for range n {
		started.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			started.Done()
			<-release
			runtime.UnlockOSThread()
		})
	}
	started.Wait()
	close(release)
	done.Wait()
}
