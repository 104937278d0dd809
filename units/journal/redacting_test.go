package journal

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestRedacting(t *testing.T) {
	var out bytes.Buffer
	hide := func(s string) string { return strings.ReplaceAll(s, "secret", "[x]") }
	log := slog.New(Redacting(slog.NewTextHandler(&out, nil), hide)).With("with", "a secret").WithGroup("g")
	log.Error("the secret is out", "text", "secret", "error", errors.New("has a secret"), "list", []string{"secret"}, "n", 7, "bytes", []byte("a secret"), "address", netip.MustParseAddr("192.0.2.1"),
		"took", time.Second, slog.Group("inner", "text", "secret"))
	got := out.String()
	if strings.Contains(got, "secret") {
		t.Errorf("it is left: %s", got)
	}
	for _, want := range []string{`msg="the [x] is out"`, `with="a [x]"`, `g.text=[x]`, `g.error="has a [x]"`, `g.list=[[x]]`, `g.n=7`, `g.bytes="a [x]"`, "g.address=192.0.2.1", `g.took=1s`, `g.inner.text=[x]`, "level=ERROR"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}
