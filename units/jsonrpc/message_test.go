package jsonrpc

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestErrorOfAServer: what a person reads of a server's error is a short sentence, whatever the server has written.
func TestErrorOfAServer(t *testing.T) {
	for raw, want := range map[string]string{
		`{"code":-32602,"message":"no such page","data":{"a":1}}`: "error -32602: \"no such page\"",
		`{"code":1,"message":"a \u001b[2J\u202e\"b\n\\c"}`:        `error 1: "a \x1b[2J\u202e'b\n\c"`,
		`{"code":1,"message":"\ud800"}`:                           "error 1: \"\uFFFD\"",
		`{"code":"x","message":7}`:                                "error 0",
		`{"code":1}`:                                              "error 1",
		`{`:                                                       "error 0",
	} {
		if got := (&Error{Raw: []byte(raw)}).Error(); got != "the server answered with "+want {
			t.Errorf("%s is shown as %q, want %q", raw, got, want)
		}
	}
	long := (&Error{Raw: []byte(`{"code":1,"message":"` + strings.Repeat("é", 5<<20) + `"}`)}).Error()
	if len(long) > 1100 || !utf8.ValidString(long) || !strings.HasSuffix(long, `é..."`) {
		t.Errorf("%d bytes of a message of 10 MB: %.100q", len(long), long)
	}
}
