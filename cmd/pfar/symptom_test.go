package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/control"
)

// TestSymptoms has what programs say that their sandbox has kept from something, and what says nothing of it.
func TestSymptoms(t *testing.T) {
	for text, want := range map[string]string{
		"connect ECONNREFUSED 127.0.0.1:5432":                                                   `add "127.0.0.1:5432" to allowed_domains in /d/x.hcl`,
		"connect ECONNREFUSED ::1:6379":                                                         `add "127.0.0.1:6379" to allowed_domains in /d/x.hcl`,
		"dial tcp 127.0.0.1:5432: connect: connection refused":                                  `add "127.0.0.1:5432"`,
		`connection to server at "localhost" (127.0.0.1), port 5432 failed: Connection refused`: `add "127.0.0.1:5432"`,
		"connect ECONNREFUSED 10.0.0.1:5432":                                                    "",
		"EROFS: read-only file system, open '/usr/lib/node_modules/@modelcontextprotocol/server-memory/dist/memory.jsonl'": `env = { MEMORY_FILE_PATH = "/home/mcp/memory.jsonl" }`,
		"OSError: [Errno 30] Read-only file system: '/opt/x/cache.db'":                                                     "have it keep /opt/x/cache.db there",
		"Read-only file system": "(state = true in the block sandbox of /d/x.hcl)",
		"ls: cannot access '/etc/chromium.d': No such file or directory":    "if this machine has /etc/chromium.d, add it to read_only in the block sandbox of /d/x.hcl",
		"/usr/bin/chromium: 1: /etc/chromium.d/: No such file or directory": "/etc/chromium.d/, add it",
		"ENOENT: no such file or directory, open '/etc/app/x.conf'":         "/etc/app/x.conf, add it",
		"ENOENT: no such file or directory, open '/home/mcp/x'":             "",
		"no such page": "",
	} {
		if got := symptomRemedy("/d/x.hcl", text); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestRefusalRemedies: what the bridge has refused can be allowed by a line that is named, as far as it can.
func TestRefusalRemedies(t *testing.T) {
	for refused, want := range map[egress.Refusal]string{
		{Host: "api.example", Reason: "name-not-declared"}:        `to allow it, add "api.example" to allowed_domains in /d/x.hcl`,
		{Host: "api.example:443", Reason: "name-not-declared"}:    `add "api.example" to`,
		{Host: "api.example:8080", Reason: "name-not-declared"}:   `add "api.example:8080" to`,
		{Host: "api.example:443", Reason: "port-not-declared"}:    `add "api.example:443" to`,
		{Host: "93.184.215.66:443", Reason: "not-declared"}:       `add "93.184.215.66" to`,
		{Host: "db.lan:5432", Reason: "address-refused"}:          `add allow_private = { "db.lan" = ["ADDRESS"] } to /d/x.hcl`,
		{Host: "ads.example", Reason: "blocked"}:                  "",
		{Host: "x\x1b[2J", Reason: "name-not-declared"}:           "",
		{Host: `a"]}evil`, Reason: "name-not-declared"}:           "",
		{Host: "*", Reason: "name-not-declared"}:                  "",
		{Host: "api.example:443", Reason: "not-resolved"}:         "",
		{Host: "[redacted: k].test", Reason: "name-not-declared"}: "",
		{}: "",
	} {
		if got := refusalRemedy(control.Server{File: "/d/x.hcl", Denial: control.Denial{Refused: refused}}); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", refused, got, want)
		}
	}
}

// TestCallOfARefusedServer: a call that fails because its server was refused a host, or has not what it needs, says
// what to do.
func TestCallOfARefusedServer(t *testing.T) {
	refused := egress.Refusal{Host: "api.example:443", Reason: egress.NameNotDeclared}
	later, before := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	refusedAt := func(at time.Time) control.Server {
		return control.Server{Denial: control.Denial{LastRefusal: refused.String(), LastRefused: at, Refused: refused}}
	}
	for name, one := range map[string]struct {
		server control.Server
		tool   string
		hint   string
	}{
		"refused":         {refusedAt(later), "fail", "hint: notion was refused api.example:443 (name-not-declared) meanwhile; to allow it, add \"api.example\" to allowed_domains in /d/n.hcl\n"},
		"an error":        {refusedAt(later), "break", "upstream is gone\nhint: notion was refused api.example:443"},
		"refused earlier": {refusedAt(before), "fail", ""},
		"nothing refused": {control.Server{}, "fail", ""},
	} {
		one.server.Name, one.server.State, one.server.File = "notion", control.Running, "/d/n.hcl"
		first := searchGateway(t, "")
		first.pfard(t, control.Report{Servers: []control.Server{one.server}}, nil)
		b := first.again("")
		code := b.run(t.Context(), []string{"call", "notion." + one.tool})
		if got := b.err.String(); strings.Contains(got, "hint:") != (one.hint != "") || !strings.Contains(got, one.hint) || (code == exitToolError) != (one.tool == "fail") {
			t.Errorf("%s: exit %d, %s", name, code, got)
		}
		b = first.again("")
		if b.run(t.Context(), []string{"status", "notion"}); one.server.LastRefusal != "" && !strings.Contains(b.out.String(), `to allow it, add "api.example" to allowed_domains`) {
			t.Errorf("%s: %s", name, b.out)
		}
	}
}
