package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/redact"
)

// TestRedactionIsTold: those who ask hear of what the vault has had since pfard was started, at once and for good, and no value.
func TestRedactionIsTold(t *testing.T) {
	v, err := vault.Open(filepath.Join(t.TempDir(), "vault"))
	if err != nil {
		t.Fatal(err)
	}
	const first, second, third = "first-value-of-a-1", "second-value-of-a-2", "the-value-of-b-3"
	if err := v.Set("a", []byte(first)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	d := newDaemon(options{}, slog.New(slog.NewTextHandler(&log, nil)), v, "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heard, ended := make(chan []byte, 8), make(chan error, 1)
	go func() {
		ended <- d.answer(ctx, control.Peer{}, control.Request{Verb: control.Redaction}, func(r control.Response) error {
			heard <- r.Redaction
			return nil
		})
	}()
	next := func() *redact.Set {
		t.Helper()
		select {
		case b := <-heard:
			s := new(redact.Set)
			if err := s.UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
			for _, value := range []string{first, second, third} {
				if bytes.Contains(b, []byte(value[:6])) {
					t.Error("what is told holds a value")
				}
			}
			return s
		case <-time.After(10 * time.Second):
			t.Fatal("nothing is told")
			return nil
		}
	}
	know := func(s *redact.Set, want ...string) {
		t.Helper()
		for _, value := range []string{first, second, third} {
			if got, want := s.String(value) != value, strings.Contains(strings.Join(want, " "), value); got != want {
				t.Errorf("%q is recognised: %v", value, got)
			}
		}
	}
	know(next(), first)
	d.redaction.put("a", []byte(second))
	know(next(), first, second) // a server may have the first one yet
	d.redaction.put("a", []byte(second))
	d.redaction.put("b", []byte(third))
	know(next(), first, second, third)
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	d.log.Warn("an error with "+second, "error", errors.New("of "+third))
	if text := log.String(); strings.Contains(text, second) || strings.Contains(text, third) || !strings.Contains(text, "[redacted: b]") {
		t.Errorf("pfard's own log: %s", text)
	}
}
