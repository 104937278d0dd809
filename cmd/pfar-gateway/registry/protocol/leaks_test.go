package protocol

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestNotKnownInTime: a request does not wait without end for the gateway to know the secrets.
func TestNotKnownInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Memory: keep.Volatile(), Limits: new(Limits), Secrets: NewRedaction()})
		began := time.Now()
		var e *jsonrpc.Error
		err := c.secrets.known(t.Context(), c)
		if !errors.As(err, &e) || e.Code != CodeUnavailable || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestLeaksAreLoggedOnceAMinute: each secret, however often a server says it.
func TestLeaksAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := map[string][]byte{"a": []byte("ntn_4mYq81RzLc0pXvWbT7uKd2"), "b": []byte("sk_9fQe72LkWm3nRtYz5HvBc1")}
		by := NewRedaction()
		by.Learn(redact.New(values))
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		c := New(Config{Memory: keep.Volatile(), Limits: new(Limits), Secrets: by, Log: log})
		said := func(want int, names ...string) {
			t.Helper()
			out.Reset()
			for _, name := range names {
				if line := c.secrets.hide(values[name]); bytes.Contains(line, values[name]) {
					t.Errorf("%s stays in %q", name, line)
				}
			}
			if n := strings.Count(out.String(), "secret="); n != want {
				t.Errorf("of %q %d entries, want %d: %s", names, n, want, &out)
			}
		}
		said(2, "a", "a", "b", "a", "b")
		said(0, "a", "b")
		time.Sleep(time.Minute)
		said(1, "a", "a", "a")
		if all := c.Leaks(); all["a"] != 7 || all["b"] != 3 {
			t.Errorf("counted %v", all)
		}
	})
}
