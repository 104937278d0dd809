package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/attach/attachtest"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/systemd"
)

// TestRedactionIsTold: those who ask hear of what the vault has had since pfard was started, at once and for good, and
// no value.
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
		case <-time.After(2 * time.Minute):
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

// hides is what a process has been told to hide, and tells how that goes on.
func hides(t *testing.T, process *attach.Conn) *redact.Set {
	t.Helper()
	defer time.AfterFunc(2*time.Minute, func() { process.Close() }).Stop()
	for {
		m, files, err := process.Receive()
		if err != nil || m.Error != "" {
			t.Fatalf("got %+v, %v", m, err)
		}
		if !m.Redact {
			attach.CloseAll(files)
			continue
		}
		b, err := units.ReadSealed(files[0], attach.MaxSet)
		s := new(redact.Set)
		if err = errors.Join(err, s.UnmarshalBinary(b)); err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// TestProcessesKnowTheirOwnSecrets: a bridge that was taken over has nothing of another server's secrets and of a token
// set nothing but the access token; a launcher has nothing at all, and what it is to log is searched for everything.
func TestProcessesKnowTheirOwnSecrets(t *testing.T) {
	t.Setenv("PFAR_TEST_OF_A", "variable-of-a-5")
	d, _, _ := fixture(t)
	store := func(verb control.Verb, key, value string) {
		t.Helper()
		if _, err := askVault(t, d, control.Request{Verb: verb, Key: key, Secret: value}); err != nil {
			t.Fatal(err)
		}
	}
	store(control.Store, "a", "first-of-a-1")
	store(control.Store, "held", "brokered-of-a-4")
	store(control.Store, "b", "first-of-b-3")
	d.redaction.addAll("a", [][]byte{[]byte("first-of-a-1"), []byte("refresh-of-a-6")}) // as of a token set
	one := plan.Plan{Name: "one", Credentials: []plan.Credential{
		{Name: "A", Key: "a"}, {Name: "V", From: "PFAR_TEST_OF_A"}, {Name: "H", Key: "held", Deliver: broker.OnWire},
	}}
	link := systemd.NewLink(func(context.Context) (*systemd.Bus, error) { return nil, errors.New("there is none") })
	link.Close()
	r, err := systemd.NewRunner(systemd.Config{
		Log: d.log, Run: t.TempDir(), Link: link, Events: func(units.Event) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Offer("one", &one)
	text, err := json.Marshal(one)
	if err != nil {
		t.Fatal(err)
	}
	f := newHoldFixture(t)
	d.hold = f.start(t, f.config())
	a := newAttachments(d, link, nil)
	a.runner, a.rootless = r, true
	if _, err := d.delivery.secrets(one); err != nil { // before anything of it runs
		t.Fatal(err)
	}
	digest, p := units.Digest(text), systemd.Process{Instance: "one", PID: 9}
	converse := func(t *testing.T, with func(*attach.Conn) error) *attach.Conn {
		process, ours := attachtest.Pair(t)
		ended := make(chan error, 1)
		go func() { ended <- with(ours) }()
		t.Cleanup(func() {
			process.Close()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return process
	}
	t.Run("bridge", func(t *testing.T) {
		process := converse(t, func(c *attach.Conn) error { return a.bridge(c, p, &attach.Hello{Bridge: true, Digest: digest}) })
		recognises := func(s *redact.Set, own, foreign string) {
			t.Helper()
			for value := range strings.SplitSeq(own, " ") {
				if s.String(value) == value {
					t.Errorf("%q is not recognised", value)
				}
			}
			for value := range strings.SplitSeq(foreign, " ") {
				if s.String(value) != value {
					t.Errorf("%q of another is recognised", value)
				}
			}
		}
		own, foreign := "first-of-a-1 variable-of-a-5 brokered-of-a-4", "first-of-b-3 refresh-of-a-6"
		recognises(hides(t, process), own, foreign)
		store(control.Rotate, "b", "rotated-of-b-3")
		store(control.Rotate, "a", "rotated-of-a-1")
		recognises(hides(t, process), own+" rotated-of-a-1", foreign+" rotated-of-b-3")
	})
	t.Run("launcher", func(t *testing.T) {
		process := converse(t, func(c *attach.Conn) error {
			return a.launcher(c, p, 9, &attach.Hello{Digest: digest, Again: true})
		})
		if m, files, err := process.Receive(); err != nil || m.Welcome == nil || len(files) != 0 {
			t.Fatalf("the welcome is %+v with %d files, %v", m, len(files), err)
		}
		if m, files, err := process.Receive(); err != nil || m.Label == nil || len(files) != 0 {
			t.Fatalf("after the welcome %+v with %d files, %v; want the label", m, len(files), err)
		}
		store(control.Store, "c", "stored-meanwhile-7")
		lines := strings.Fields("first-of-a-1 variable-of-a-5 brokered-of-a-4 first-of-b-3 refresh-of-a-6 stored-meanwhile-7 harmless-words-8")
		var text [][]byte
		for _, l := range lines {
			text = append(text, []byte(l))
		}
		question, err := attach.Sealed(text)
		if err != nil {
			t.Fatal(err)
		}
		defer question.Close()
		if err := process.Send(attach.Message{Search: &attach.Search{}}, question); err != nil {
			t.Fatal(err)
		}
		m, files, err := process.Receive() // and no set comes before it
		if err != nil || m.Found == nil {
			t.Fatalf("got %+v, %v", m, err)
		}
		got, err := m.Found.Lines(files, len(lines))
		if want := "[redacted: a] [redacted: $PFAR_TEST_OF_A] [redacted: held] [redacted: b] [redacted: a.1] [redacted: c] harmless-words-8"; err != nil || strings.Join(got, " ") != want {
			t.Errorf("it may log %q, %v; want %q", got, err, want)
		}
		if len(m.Found.Secrets) != 6 || m.Found.Behind < len("refresh-of-a-6") {
			t.Errorf("it is told %+v", m.Found)
		}
	})
}
