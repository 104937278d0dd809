package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestVaultGive: only a yes gives, and what is given is what was shown.
func TestVaultGive(t *testing.T) {
	b := newBench(t, "")
	p := b.pfard(t, control.Report{}, func(*fakePfard, control.Request) error { return nil })
	asked := func() (digests []string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range p.requests {
			if r.Verb != control.Give || r.Server != "mail" {
				t.Errorf("pfard is asked for %+v", r)
			}
			digests = append(digests, r.Gift)
		}
		p.requests = nil
		return digests
	}
	n := b.again("")
	if code := n.run(t.Context(), []string{"vault", "give", "mail"}); code != exitOK || n.err.String() != "no secret is kept from \"mail\"\n" || !slices.Equal(asked(), []string{""}) {
		t.Errorf("nothing to give: exit %d, %s", code, n.err)
	}
	why := []string{"\x1b[2Jit also reaches collect.example"}
	p.gift = control.Gift{Server: "mail", Keys: []string{"token"}, Why: why, Digest: "d1"}
	n = b.again("y\n") // no terminal
	if code := n.run(t.Context(), []string{"vault", "give", "mail"}); code != exitUsage || !strings.Contains(n.err.String(), "--yes") || !slices.Equal(asked(), []string{""}) {
		t.Errorf("nobody to ask: exit %d, %s", code, n.err)
	}
	for answer, want := range map[string]int{"y\n": exitOK, "\n": exitFailed, "n\n": exitFailed} {
		operator, program := terminalPair(t)
		n := b.again("")
		n.pfar.stdin = program
		if _, err := operator.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		if code := n.run(t.Context(), []string{"vault", "give", "mail"}); code != want {
			t.Errorf("%q: exit %d, %s", answer, code, n.err)
		}
		if shown := n.err.String(); !strings.Contains(shown, "it also reaches collect.example") ||
			!strings.Contains(shown, "[y/N]") || strings.Contains(shown, "\x1b[2J") {
			t.Errorf("%q: asked with %q", answer, shown)
		}
		digests := []string{""}
		if want == exitOK {
			digests = append(digests, "d1")
		}
		if got := asked(); !slices.Equal(got, digests) {
			t.Errorf("%q: pfard is asked with %q", answer, got)
		}
	}
	n = b.again("")
	if code := n.run(t.Context(), []string{"vault", "give", "mail", "--yes", "--json"}); code != exitOK || !strings.Contains(n.out.String(), `"given": true`) || !slices.Equal(asked(), []string{"", "d1"}) {
		t.Errorf("--yes --json: exit %d, %s%s", code, n.out, n.err)
	}
}
