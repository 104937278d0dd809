package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestLogsOfAllServers: they are one log, in the order of time, and each line names its server.
func TestLogsOfAllServers(t *testing.T) {
	b := newBench(t, "")
	if err := os.MkdirAll(filepath.Dir(b.dirs.Log("fs")), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"fs":     "2026-08-01T12:00:00.000Z first\nwithout a time\n2026-08-01T12:00:03.000Z last\nnot ended",
		"notion": "2026-08-01T12:00:01.000Z second \x1b[2J\n",
	} {
		if err := os.WriteFile(b.dirs.Log(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.pfard(t, control.Report{Servers: []control.Server{{Name: "fs"}, {Name: "notion"}, {Name: "quiet"}}}, nil)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "fs  2026-08-01T12:00:00.000Z first\nfs  without a time\nnotion  2026-08-01T12:00:01.000Z second \x1b[2J\nfs  2026-08-01T12:00:03.000Z last\nfs  not ended\n"},
		{[]string{"-n", "2"}, "fs  2026-08-01T12:00:03.000Z last\nfs  not ended\n"},
		{[]string{"-n", "3", "--json"}, `{"time":"2026-08-01T12:00:01Z","server":"notion","text":"second \u001b[2J"}` + "\n" +
			`{"time":"2026-08-01T12:00:03Z","server":"fs","text":"last"}` + "\n" + `{"server":"fs","text":"not ended"}` + "\n"},
	} {
		b := b.again("")
		if code := b.run(t.Context(), append([]string{"logs"}, tt.args...)); code != 0 || b.out.String() != tt.want {
			t.Errorf("%q: exit %d, got:\n%s\nwant:\n%s%s", tt.args, code, b.out, tt.want, b.err)
		}
	}
}
