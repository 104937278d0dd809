package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// scripted is a checkRunner whose runs end as the test says.
type scripted struct {
	begun chan struct{}
	ends  chan string
}

func (s scripted) runChecks(ctx context.Context) ([]byte, error) {
	s.begun <- struct{}{}
	text, why, failed := strings.Cut(<-s.ends, "!")
	if failed {
		return []byte(text), errors.New(why)
	}
	return []byte(text), nil
}

// TestCheckup: one run at a time, whose result is kept for a while; who begins it waits a little, and nobody else.
func TestCheckup(t *testing.T) {
	runs := scripted{make(chan struct{}, 9), make(chan string, 9)}
	c := newCheckup(runs)
	c.glance = 0
	for range 3 {
		if now := c.now(t.Context()); !now.Running || len(now.Findings) > 0 {
			t.Errorf("before the end: %+v", now)
		}
	}
	<-runs.begun
	c.glance = time.Hour
	if now := c.now(t.Context()); !now.Running {
		t.Errorf("who has not begun it waits: %+v", now)
	}
	under := c.under
	runs.ends <- `[{"check":"node","outcome":"fail","detail":"none"}]!1 check failed`
	<-under
	now := c.now(t.Context())
	if now.Running || now.Error != "" || len(now.Findings) != 1 || now.Findings[0].Detail != "none" {
		t.Errorf("after the end: %+v", now)
	}
	if now := c.now(t.Context()); now.Running || len(now.Findings) != 1 || len(runs.begun) > 0 {
		t.Errorf("soon after that: %+v, %d more runs", now, len(runs.begun))
	}
	for text, want := range map[string]string{
		"!no \x1b[31mbus": "no  [31mbus", "nothing of JSON": "invalid character", `{"check":"node"}`: "cannot unmarshal",
		`[{"check":"node"!it was killed`: "it was killed",
	} {
		c.last.At = c.last.At.Add(-checksKept)
		runs.ends <- text
		if now := c.now(t.Context()); now.Running || !strings.Contains(now.Error, want) || len(now.Findings) > 0 {
			t.Errorf("%q: %+v", text, now)
		}
		<-runs.begun
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	c.last.At = time.Time{}
	if now := c.now(gone); !now.Running {
		t.Errorf("who has gone waits: %+v", now)
	}
	runs.ends <- "[]"
}

// TestRunDoctor: under pfar up, the checks are those of pfar doctor.
func TestRunDoctor(t *testing.T) {
	p := script(t, `printf '["%s"]' "$*"; echo '{"error":"1 check failed"}' >&2; exit 1`)
	text, err := localPages{pfar: p.run}.runChecks(t.Context())
	if string(text) != `["doctor --json"]` || err == nil || err.Error() != "1 check failed" {
		t.Errorf("%q, %v", text, err)
	}
}
