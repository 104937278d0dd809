package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/pfar/pfar/cmd/pfar-sandbox/bubblewrap"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/sandbox"
)

// probeArg has this binary make one empty sandbox, on the very path that servers take, for `pfar doctor`.
const probeArg = "probe"

// reportProbe probes and tells the result, a units.Probe, or the error. pfar-probe.service has it as its status text.
// It returns the exit code.
func reportProbe(args []string) int {
	o, err := parse(args)
	var found units.Probe
	if err == nil {
		found, err = probe(o.network(egress.Policy{}))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "pfar-sandbox: %v\n", err)
		_ = notify([]string{set("STATUS", err.Error())})
		return 1
	}
	fmt.Println(found.Line())
	if err := notify([]string{set("STATUS", found.Line())}); err != nil {
		fmt.Fprintf(os.Stderr, "pfar-sandbox: %v\n", err)
		return 1
	}
	return 0
}

// probe returns how long a sandbox takes from nothing until the program in it has ended, and what it shares with the
// host for want of an overlayfs.
func probe(n bubblewrap.Network) (units.Probe, error) {
	bwrap, err := bubblewrap.Find()
	if err != nil {
		return units.Probe{}, err
	}
	began := time.Now()
	s, err := bubblewrap.Start(bwrap, emptySandbox(), n, bubblewrap.IDs{}, units.Secrets{})
	if err != nil {
		return units.Probe{}, err
	}
	said := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(s.Stderr, 4<<10))
		said <- strings.TrimSpace(string(b))
	}()
	sockets, err := s.Sockets()
	attach.CloseAll(sockets)
	if err == nil {
		err = s.Release()
	}
	if err != nil {
		s.Kill()
		return units.Probe{}, err
	}
	if err := <-s.Exited(); err != nil {
		return units.Probe{}, errors.New("starting an empty sandbox: " + bubblewrap.ExitWords(err) + ": " + <-said)
	}
	return units.Probe{Took: time.Since(began), Shared: s.Shared}, nil
}

// emptySandbox runs true(1).
func emptySandbox() sandbox.Sandbox {
	s := sandbox.Sandbox{
		Mounts:  []sandbox.Mount{{Kind: sandbox.ROOverlay, Source: "/usr", Dest: "/usr"}},
		Command: "/usr/bin/true", Dir: "/usr", Limits: sandbox.Limits{Memory: 64 << 20, Tasks: 16},
	}
	for _, d := range []string{"/lib", "/lib64", "/bin"} {
		st, err := os.Lstat(d)
		switch {
		case err != nil:
		case st.Mode()&os.ModeSymlink != 0:
			if text, err := os.Readlink(d); err == nil {
				s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.Symlink, Source: text, Dest: d})
			}
		default:
			s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.ROOverlay, Source: d, Dest: d})
		}
	}
	return s
}
