package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
)

// TestWhatEndsFirst: what a server has open is cut before it has its time to end. pfar's adapter, which speaks with a
// remote server, ends while it can still tell that server.
func TestWhatEndsFirst(t *testing.T) {
	for remote, want := range map[string]string{
		"": "bridge launcher", "https://mcp.example/mcp": "launcher bridge",
	} {
		f := newRunner(t, nil)
		for name, who := range map[string]string{"pfar-sandbox": "launcher", "pfar-egress": "bridge"} {
			script := "#!/bin/sh\ntrap 'echo ended " + who + "; exit 0' TERM\necho begun " + who +
				"\nwhile :; do sleep 0.05; done\n"
			if err := putProgram(filepath.Join(f.cfg.Bin, name), []byte(script)); err != nil {
				t.Fatal(err)
			}
		}
		p := testPlan("run", "")
		p.Sandbox.Remote = remote
		if err := f.Start(p, units.Secrets{}); err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if _, err := w.WriteString("a connection"); err != nil {
			t.Fatal(err)
		}
		f.servers[p.Name].listen([]*os.File{r})
		for _, who := range []string{"launcher", "bridge"} {
			eventually(t, "the "+who+" runs", func() bool { return strings.Contains(f.logged(), "begun "+who) })
		}
		f.Stop(p.Name)
		var order []string
		for line := range strings.Lines(f.logged()) {
			if _, who, ok := strings.Cut(strings.TrimSpace(line), "ended "); ok {
				order = append(order, who)
			}
		}
		if got := strings.Join(order, " "); got != want {
			t.Errorf("a server at %q: %q ends, want %q", remote, got, want)
		}
	}
}
