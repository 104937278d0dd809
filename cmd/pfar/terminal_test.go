package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestEscape(t *testing.T) {
	tests := []struct{ in, line, kept string }{
		{"plain ünïcödé 日本 👩‍👧", "plain ünïcödé 日本 👩‍👧", "plain ünïcödé 日本 👩‍👧"},
		{"a\nb\tc", `a\nb\tc`, "a\nb\tc"},
		{"\x1b]0;owned\x07", `\x1b]0;owned\x07`, `\x1b]0;owned\x07`},
		{"\x1b[2J\r", `\x1b[2J\r`, `\x1b[2J\r`},
		{"\u009b31m\x7f\x00", `\u009b31m\x7f\x00`, `\u009b31m\x7f\x00`},
		{"user\u202etxt.exe\u2066", `user\u202etxt.exe\u2066`, `user\u202etxt.exe\u2066`},
		{"a\u200bb\ufeff", `a\u200bb\ufeff`, `a\u200bb\ufeff`},
		{"a\u2028b", `a\u2028b`, `a\u2028b`},
		{"a\u3164b\uffa0\u034f", `a\u3164b\uffa0\u034f`, `a\u3164b\uffa0\u034f`},
		{"tag\U000e0041", `tag\U000e0041`, `tag\U000e0041`},
		{"bad\xff\xfe\ufffd", `bad\xff\xfe` + "\ufffd", `bad\xff\xfe` + "\ufffd"},
	}
	for _, tt := range tests {
		if got := escape(tt.in, oneLine); got != tt.line {
			t.Errorf("one line of %q: got %q, want %q", tt.in, got, tt.line)
		}
		if got := escape(tt.in, keepLines); got != tt.kept {
			t.Errorf("lines of %q: got %q, want %q", tt.in, got, tt.kept)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("\x1b[31m\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		for _, l := range []lines{oneLine, keepLines} {
			if got := escape(s, l); strings.ContainsFunc(got, func(r rune) bool { return hostile(r, l) }) {
				t.Errorf("%q became %q", s, got)
			}
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		safe := escapeJSON(b)
		var want, got string
		if json.Unmarshal(b, &want) != nil || json.Unmarshal(safe, &got) != nil || want != got {
			t.Errorf("JSON %s became %s", b, safe)
		}
		if bytes.ContainsFunc(safe, func(r rune) bool { return hostile(r, keepLines) }) {
			t.Errorf("JSON %s became %q", b, safe)
		}
	})
}

// TestEscapeJSONSpaces: a carriage return between tokens would have a terminal write over what stands before it.
func TestEscapeJSONSpaces(t *testing.T) {
	if got := string(escapeJSON([]byte("{\"denied\":\r1,\r\n\"x\":\"\\r\"}"))); got != "{\"denied\": 1, \n\"x\":\"\\r\"}" {
		t.Errorf("%q", got)
	}
}

func TestResult(t *testing.T) {
	tests := []struct{ name, raw, want string }{
		{"text", `{"content":[{"type":"text","text":"one"},{"type":"text","text":"two\n"}]}`, "one\ntwo\n"},
		{"control characters", `{"content":[{"type":"text","text":"\u001b]52;c;cm0gLXJm\u0007"}]}`, `\x1b]52;c;cm0gLXJm\x07` + "\n"},
		{"structured repeated as text", `{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`, "{\"a\":1}\n"},
		{"structured alone", `{"content":[],"structuredContent":{"a":9007199254740993}}`, "{\n  \"a\": 9007199254740993\n}\n"},
		{"image", `{"content":[{"type":"image","mimeType":"image/png","data":"AAAA"}]}`, "[image image/png, 3 bytes; --output json has them]\n"},
		{"resources", `{"content":[{"type":"resource_link","name":"n","uri":"file:///x"},{"type":"resource","resource":{"uri":"u","text":"body"}},{"type":"resource","resource":{"uri":"u","mimeType":"m","blob":"AAA="}}]}`,
			"[resource n file:///x]\nbody\n[resource u m, 2 bytes; --output json has them]\n"},
		{"unknown type", `{"content":[{"type":"hologram","x":1}]}`, "{\n  \"type\": \"hologram\",\n  \"x\": 1\n}\n"},
		{"not an object", `{"content":[7]}`, "7\n"},
		{"nothing", `{}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r result
			if err := json.Unmarshal([]byte(tt.raw), &r); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := printText(&b, r, true); err != nil || b.String() != tt.want {
				t.Errorf("got %q, %v; want %q", b.String(), err, tt.want)
			}
		})
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	c := newPfar(nil, &b, &b, func(string) string { return "" }, 0)
	c.table(&b, [][]cell{heading("A", "B", "C"), {{"ünï", ""}, {"", ""}, {"x\ny", ""}}, {{"a", red}, {"bb", ""}, {"", ""}}})
	if want := "A    B   C\nünï      x\\ny\na    bb\n"; b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

// TestNoColor: colour goes to a terminal that can, and to nothing else.
func TestNoColor(t *testing.T) {
	for _, c := range []struct {
		name, variable, value string
		piped, coloured       bool
	}{
		{name: "a terminal", coloured: true},
		{name: "NO_COLOR", variable: "NO_COLOR", value: "1"},
		{name: "any NO_COLOR", variable: "NO_COLOR", value: "0"},
		{name: "an empty NO_COLOR", variable: "NO_COLOR", coloured: true},
		{name: "a dumb terminal", variable: "TERM", value: "dumb"},
		{name: "no terminal", piped: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "")
			b.pfard(t, sampleReport(time.Now()), nil)
			b.getenv = variables(b.getenv, map[string]string{c.variable: c.value})
			screen, program := newScreen(t, 80, 24)
			if !c.piped {
				b.stdout, b.stderr = program, program
			}
			if code := b.run(t.Context(), []string{"status"}); code != exitOK {
				t.Fatalf("exit %d, %s", code, b.err)
			}
			fmt.Fprint(program, "end")
			screen.await(t, "end")
			_, drawn, _ := screen.state()
			seen := drawn + b.out.String()
			if !strings.Contains(seen, "notion") || strings.Contains(seen, "\x1b") != c.coloured {
				t.Errorf("%q", seen)
			}
		})
	}
}

// TestUnwritten: what has not arrived is no success, whichever verb it is of.
func TestUnwritten(t *testing.T) {
	first := newBench(t, "")
	first.pfard(t, sampleReport(time.Now()), nil)
	for _, args := range []string{"version", "version --json", "status", "status notion", "vault list", "client list", "help", "client add desk"} {
		b := first.again("")
		b.stdout = brokenWriter{}
		if code := b.run(t.Context(), strings.Fields(args)); code != exitFailed || !strings.Contains(b.err.String(), "the disk is full") {
			t.Errorf("%s: exit %d, %s", args, code, b.err)
		}
	}
}
