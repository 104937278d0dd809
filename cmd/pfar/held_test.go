package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/server"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/units/control"
)

// TestHeldTools: a tool that is held back is missing for a reason, and no other is called in its place.
func TestHeldTools(t *testing.T) {
	b := newBench(t, "")
	store, err := pins.Open(filepath.Join(b.dirs.Run, "pins"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	review := func(server, description string, names ...string) {
		var list []pins.Definition
		for _, name := range names {
			list = append(list, pinnedTool(name, description))
		}
		store.Review(pins.Offer{Server: server, Version: "1", TrustFirst: server == "notion", Definitions: list})
	}
	review("notion", "searches", "search", "list", "do_it")
	review("notion", "searches and sends", "search", "x;reboot", "work-list")
	review("fs", "reads", "read")
	review("off", "reads", "read")
	review("lazy", "reads", "read")
	mux := http.NewServeMux()
	mux.Handle("/", gatewayOf(
		tooled("notion", "list", "lists", `{"type":"object"}`, echo),
		tooled("notion-work", "list", "lists", `{"type":"object"}`, echo)))
	b.serveHTTP(t, mux)
	b.servePins(t, store)
	b.pfard(t, control.Report{Servers: []control.Server{
		{Name: "notion", State: control.Running}, {Name: "notion-work", State: control.Running},
		{Name: "fs", State: control.Running, Detail: "0 tools"}, {Name: "off", State: control.Stopped},
		{Name: "lazy", State: control.Sleeping}}}, nil)
	const changed, unseen = " is held until you accept it: it has changed since you did\nhint: pfar pins show ", " is held until you accept it: it is new\nhint: pfar pins show "
	for args, want := range map[string]string{
		"call notion.search":              `1 "notion.search"` + changed + "notion search\n",
		"call notion search --query x":    `1 "notion.search"` + changed + "notion search\n",
		"call mcp__notion__search":        `1 "notion.search"` + changed + "notion search\n",
		"tools notion search":             `1 "notion.search"` + changed + "notion search\n",
		"call notion.x;reboot":            `1 "notion.x;reboot"` + unseen + "notion\n",
		"call fs.read":                    `1 "fs.read"` + unseen + "fs read\n",
		"tools fs":                        "1 fs offers no tools now: it is running, 0 tools\nhint: pfar pins show fs\n",
		"call fs.write":                   "1 fs offers no tools now: it is running, 0 tools\nhint: pfar pins show fs\n",
		"call off.read":                   "1 off offers no tools now: it is stopped\nhint: pfar start off\n", // there is more in its way
		"call lazy.read":                  `1 "lazy.read"` + unseen + "lazy read\n",
		"call notion.serch":               "4 no such tool: \"notion.serch\"\nhint: \"pfar tools\" lists the tools\n",
		"call mcp-notion-work-list":       `1 "notion.work-list"` + unseen + "notion work-list\n", // it may be meant
		"call notion.list":                "0",
		"call mcp__notion-work__list":     "0",
		"call notion_work.list":           "0",
		"tools notion-work list --json=1": "0",
	} {
		n := b.again("")
		code := n.run(t.Context(), strings.Fields(args))
		if got := fmt.Sprint(code) + strings.TrimPrefix(n.err.String(), "pfar:"); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

// TestHeldToolsUnknown: a gateway that says nothing of pins does not keep tools from being called.
func TestHeldToolsUnknown(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"older":   http.NotFound,
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"nonsense": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `[{"server":"notion","held":[{"kind":"tool","name":"search","state":7}]}]`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "")
			mux := http.NewServeMux()
			mux.Handle("/", gatewayOf([]server.ServerTool{tooled("notion", "search", "searches", `{"type":"object"}`, echo)}...))
			mux.Handle("/pins", h)
			b.serveHTTP(t, mux)
			if code := b.run(t.Context(), []string{"call", "mcp__notion__search"}); code != 0 {
				t.Errorf("exit %d, %s", code, b.err)
			}
			n := b.again("")
			if code := n.run(t.Context(), []string{"call", "notion.search2"}); code != exitNoSuch || !strings.Contains(n.err.String(), "no such tool") {
				t.Errorf("exit %d, %s", code, n.err)
			}
		})
	}
}
