package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
)

// plan is what this process may know of its server's plan (generator.Plan). The declaration's file is named to the
// server by its last element only: where the owner keeps things is not the server's business.
type plan struct {
	Name   string        `json:"name"`
	File   string        `json:"file"`
	Egress egress.Policy `json:"egress"`
}

func run(ctx context.Context, idle time.Duration, log *slog.Logger) error {
	listeners, err := passedListeners()
	if err != nil {
		return err
	}
	pl, err := readPlan()
	if err != nil {
		return err
	}
	notify := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("notifying the runner, ignoring", "err", err)
		}
	}
	j := newJournal(log, pl.Name, func(status string) { notify("STATUS=" + status) })
	p := &proxy{
		name: pl.Name, file: filepath.Base(pl.File), policy: pl.Egress,
		out: newDialer(nil), limits: defaultLimits, journal: j,
	}
	s := &service{listeners: listeners, idle: idle, conns: p.limits.conns, serve: p.serveConn, log: log}
	notify("READY=1")
	err = s.run(ctx)
	notify("STOPPING=1")
	j.flush()
	return err
}

// passedListeners returns the TCP listeners that live in the server's network namespace.
func passedListeners() ([]*net.TCPListener, error) {
	files, err := units.Descriptors()
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, named := range files {
			for _, f := range named {
				f.Close() // net.FileListener has made its own copies
			}
		}
	}()
	if len(files[units.FDEgress]) == 0 {
		return nil, fmt.Errorf("reading LISTEN_FDS: no descriptor named %q was passed", units.FDEgress)
	}
	var listeners []*net.TCPListener
	for _, f := range files[units.FDEgress] {
		l, err := tcpListener(f)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// tcpListener takes TCP only: over a Unix socket a server could pass descriptors to this process (SB-20).
func tcpListener(f *os.File) (*net.TCPListener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("taking the listener %q: %w", f.Name(), err)
	}
	t, ok := l.(*net.TCPListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("taking the listener %q: it is %s, not tcp", f.Name(), l.Addr().Network())
	}
	return t, nil
}

func readPlan() (plan, error) {
	b, err := units.Credential("plan")
	if err != nil {
		return plan{}, err
	}
	var pl plan
	if err := json.Unmarshal(b, &pl); err != nil {
		return plan{}, fmt.Errorf("reading credential %q: %w", "plan", err)
	}
	if pl.Name == "" {
		return plan{}, errors.New(`reading credential "plan": it names no server`)
	}
	return pl, nil
}
