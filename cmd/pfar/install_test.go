package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestInstall: pfar asks for what was meant, shows what is being done beside the result, and says why it failed.
func TestInstall(t *testing.T) {
	const memory = "npm:mcp-memory@1.0.0"
	var asked []control.Request
	var fails error
	b := newBench(t, "")
	b.pfard(t, control.Report{}, func(p *fakePfard, q control.Request) error {
		asked = append(asked, q)
		p.installs = control.Installing{Package: memory, Folder: "/p", Done: fails == nil, Already: q.Server == "old"}
		if q.Server == "scripted" {
			p.installs.Scripted = []string{"@a/b", "c\x1b[2J"}
		}
		return fails
	})
	run := func(args ...string) (int, *bench) {
		n := b.again("")
		return n.run(t.Context(), append([]string{"install"}, args...)), n
	}
	if code, n := run(memory); code != 0 || n.out.String() != memory+": installed\n" {
		t.Errorf("%d: %s %s", code, n.out, n.err)
	}
	if code, n := run("old"); code != 0 || n.out.String() != memory+": is there already\n" {
		t.Errorf("%d: %s %s", code, n.out, n.err)
	}
	var got control.Installing
	code, n := run("notion", "--json")
	if err := json.Unmarshal(n.out.Bytes(), &got); code != 0 || err != nil || !got.Done || got.Folder != "/p" {
		t.Errorf("%d: %s %v", code, n.out, err)
	}
	if len(asked) != 3 || asked[0].Package != memory || asked[0].Server != "" || asked[2].Server != "notion" {
		t.Errorf("asked for %+v", asked)
	}
	for _, bad := range []string{"npm:mcp-memory", "gem:x@1", "npm:../x@1.0.0", "npm:x@latest"} {
		if code, n := run(bad); code != exitUsage || len(asked) != 3 {
			t.Errorf("%s: %d %s", bad, code, n.err)
		}
	}
	const sentence = memory + ": pfar did not run the install scripts of @a/b, c\\x1b[2J; if the server needs them, "
	if code, n := run("scripted"); code != 0 || !strings.HasPrefix(n.err.String(), sentence) {
		t.Errorf("%d: %q", code, n.err)
	}
	fails = fmt.Errorf("installing %s: exit status 1: 404 \x1b[2J", memory)
	code, n = run(memory)
	if said := n.err.String(); code != exitFailed || !strings.Contains(said, "404") || strings.Contains(said, "\x1b") {
		t.Errorf("%d: %q", code, said)
	}
}
