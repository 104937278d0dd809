package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/units/control"
)

// journalText collects the log. The trail writes to it from goroutines of its own.
type journalText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journalText) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journalText) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// TestPfardKnowsThatTheAuditFails: from the first record that cannot be written until one can be. The journal has it
// once.
func TestPfardKnowsThatTheAuditFails(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan string)
	served := make(chan error, 1)
	go func() {
		served <- control.Serve(ctx, l, func(ctx context.Context, _ control.Peer, q control.Request, send func(control.Response) error) error {
			if err := send(control.Response{}); err != nil {
				return err
			}
			told <- string(q.Verb) + ": " + q.Why // after the answer: the gateway may hang up as soon as this is read
			<-ctx.Done()
			told <- "hung up"
			return nil
		})
	}()
	var log journalText
	g := &gateway{log: slog.New(slog.NewTextHandler(&log, nil)), pfard: &control.Client{Path: socket}}
	g.audit = g.newAudit()
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		g.followTrouble(ctx)
	}()
	for range 2 {
		if g.record(audit.Record{Kind: audit.Pin}) == nil {
			t.Fatal("a record without a file")
		}
	}
	if got := <-told; got != "stuck: "+trail.ErrNoFile.Error() {
		t.Errorf("pfard is told %q", got)
	}
	path := filepath.Join(t.TempDir(), "gateway.jsonl")
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.useAudit(trail.Files{W: w, R: r}); err != nil { // its first record is in it: nobody has to call for that
		t.Fatal(err)
	}
	if got := <-told; got != "hung up" {
		t.Errorf("then %q", got)
	}
	cancel()
	<-followed
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "the audit cannot be written"); n != 1 {
		t.Errorf("told %d times: %s", n, log.String())
	}
}
