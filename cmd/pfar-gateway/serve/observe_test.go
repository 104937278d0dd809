package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/quota"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/handover"
)

// logged is a log that a test reads while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// entries are what has been written since the last time.
func (l *logged) entries(t *testing.T) (list []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, e)
	}
	l.b.Reset()
	return list
}

// TestCallsAreLogged, with the server, the tool, the verdict and what became of them, but not without bounds; and what
// went well leaves room for what is refused.
func TestCallsAreLogged(t *testing.T) {
	var level slog.LevelVar // info
	var log logged
	g := startOn(t, DefaultLimits(), registrytest.New(t, registry.DefaultLimits()), func(g *gateway) {
		store, err := pins.Open(registrytest.Dir(t), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		g.Pin(store)
	}, func(p *Parts) { p.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: &level})) })
	g.Launch(t, handover.Server{Name: "s", Pins: "trust-first"}, registrytest.Script{}).Ready(t)
	g.Launch(t, handover.Server{Name: "held", Pins: "hold"}, registrytest.Script{}).Ready(t)
	all, own := g.session(t, "/mcp"), g.session(t, "/mcp/s")
	log.entries(t)
	long := strings.Repeat("x", 5000)
	for name, tt := range map[string]struct {
		client             *client
		called, arguments  string
		server, tool, says string
	}{
		"schema":              {all, "s__echo", `{"message":1}`, "s", "echo", "arguments of tool"},
		"unknown tool":        {all, "s__rm", `{}`, "s", "s__rm", "unknown tool"},
		"unknown, one's":      {own, "rm\n", `{}`, "s", "rm\n", "unknown tool"},
		"unknown server":      {all, "nobody__rm", `{}`, "", "nobody__rm", "unknown tool"},
		"held":                {all, "held__echo", `{}`, "held", "held__echo", "held back"},
		"as long as you like": {all, long, `{}`, "", long[:200] + " [...]", "unknown tool"},
	} {
		raw, _ := json.Marshal(tt.called)
		tt.client.call(t, "tools/call", fmt.Sprintf(`{"name":%s,"arguments":%s}`, raw, tt.arguments))
		list := log.entries(t)
		if len(list) != 1 {
			t.Errorf("%s: %d entries: %v", name, len(list), list)
			continue
		}
		e := list[0]
		if why, _ := e["error"].(string); e["server"] != tt.server || e["tool"] != tt.tool || e["verdict"] != "deny" || e["msg"] != "call refused" || !strings.Contains(why, tt.says) || len(why) > 600 {
			t.Errorf("%s: %v", name, e)
		}
	}
	all.call(t, "tools/call", `{"name":"s__echo","arguments":{"message":"m"}}`)
	list := log.entries(t)
	if len(list) != 0 {
		t.Fatalf("of a call that went well, which audit has: %v", list)
	}
	level.Set(slog.LevelDebug)
	all.call(t, "tools/call", `{"name":"s__echo","arguments":{"message":"m"}}`)
	list = log.entries(t)
	if len(list) != 1 {
		t.Fatalf("of a call that went well: %v", list)
	}
	e := list[0]
	if id, _ := e["call"].(string); e["msg"] != "call ok" || e["server"] != "s" || e["tool"] != "echo" || e["client"] == "" || e["verdict"] != "allow" || e["outcome"] != "ok" || e["error"] != nil || !audit.IsID(id) {
		t.Errorf("of a call that went well: %v", e)
	}
	const many = 300
	begun := time.Now()
	for range many {
		all.call(t, "tools/call", `{"name":"s__echo","arguments":{"message":"m"}}`)
	}
	list = log.entries(t)
	took := time.Since(begun) // in which there is room for more
	if n := len(list); n < quota.AtOnce-1 || n > quota.AtOnce+int(took/g.srv.calls.Log.Entries.Every)+1 {
		t.Errorf("%d entries of %d calls that went well, in %v", n, many, took)
	}
	logged := len(list)
	all.call(t, "tools/call", `{"name":"s__rm"}`) // for which there is room all the same
	if list = log.entries(t); len(list) != 1 || list[0]["msg"] != "call refused" {
		t.Errorf("behind so many that went well: %v", list)
	}
	for range many {
		all.call(t, "tools/call", `{"name":"s__rm"}`)
	}
	refused := log.entries(t)
	if n := len(refused); n < 50 || n > 250 {
		t.Errorf("%d entries of %d refused calls", n, many)
	}
	g.srv.calls.Log.Entries.Flush()
	left := map[any]any{}
	for _, e := range log.entries(t) {
		left[e["kind"]] = e["calls"]
	}
	want := map[any]any{"answered": float64(many - logged), "refused or failed": float64(many - len(refused))}
	if !maps.Equal(left, want) {
		t.Errorf("left out are %v, want %v", left, want)
	}
	g.srv.calls.Log.Entries.Flush()
	if list = log.entries(t); len(list) != 0 {
		t.Errorf("told again: %v", list)
	}
}
