package protocol

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/policies/redact"
)

// TestNotKnownInTime: a request does not wait without end for the gateway to know the secrets.
func TestNotKnownInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Memory: keep.Volatile(), Limits: new(Limits), Secrets: NewRedaction()})
		began := time.Now()
		var e *jsonrpc.Error
		if err := c.secrets.known(t.Context(), c); !errors.As(err, &e) || e.Code != CodeUnavailable || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestLeaksAreLoggedOnceAMinute: each secret, however often a server says it.
func TestLeaksAreLoggedOnceAMinute(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var l leaks
	said := func(want int, names ...string) {
		t.Helper()
		out.Reset()
		for _, name := range names {
			l.add(log, []redact.Hit{{Name: name}})
		}
		if n := strings.Count(out.String(), "secret="); n != want {
			t.Errorf("of %q %d entries, want %d: %s", names, n, want, &out)
		}
	}
	said(2, "a", "a", "b", "a", "b")
	said(0, "a", "b")
	l.logged["a"] = time.Now().Add(-time.Minute - time.Second)
	said(1, "a", "b", "a")
	if all := l.all(); all["a"] != 6 || all["b"] != 4 {
		t.Errorf("counted %v", all)
	}
}
