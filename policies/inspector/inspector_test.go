package inspector

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

func TestDeclared(t *testing.T) {
	http := External{Name: "llm", URL: "http://127.0.0.1:11434/v1/chat/completions", Model: "m"}
	exec := External{Name: "scan", Exec: []string{"/usr/bin/scan", "-x"}}
	for _, good := range []External{http, exec, {Name: "a", URL: "https://api.example.org/v1/x", Model: "m", Key: "vault:k"}, {Name: "a", URL: "http://[::1]:1/", Model: "m"}, {Name: "a", URL: "https://llm.lan/", Model: "m", AllowPrivate: []string{"10.0.0.0/8"}},
		{Name: "a", Exec: []string{"/x"}, Parallel: 64, Memory: 32 << 20}, {Name: "a", Exec: []string{"/x"}, Parallel: 1, Memory: 2 << 30}, {Name: "a", URL: "https://llm.lan/", Model: "m", Parallel: 64}} {
		e, err := good.Declared()
		if err != nil || e.Chunk == 0 || e.Overlap == 0 || e.Size == 0 || e.Parallel == 0 || e.Timeout == 0 {
			t.Errorf("%+v: %v", good, err)
		}
	}
	change := func(e External, f func(*External)) External { f(&e); return e }
	for want, e := range map[string]External{
		`"A" is not a name`:          change(http, func(e *External) { e.Name = "A" }),
		`"" is not a name`:           change(http, func(e *External) { e.Name = "" }),
		"want one of":                change(http, func(e *External) { e.Exec = []string{"/x"} }),
		"exec nor url":               {Name: "a"},
		"whole path":                 {Name: "a", Exec: []string{"scan"}},
		"key belongs to url":         change(exec, func(e *External) { e.Key = "vault:k" }),
		"read_only belongs to exec":  change(http, func(e *External) { e.ReadOnly = []string{"/srv"} }),
		"model is missing":           change(http, func(e *External) { e.Model = "" }),
		"not the key itself":         change(http, func(e *External) { e.Key = "sk-123" }),
		"want https":                 change(http, func(e *External) { e.URL = "http://10.0.0.1/x" }),
		"http://127.0.0.1.evil.test": change(http, func(e *External) { e.URL = "http://127.0.0.1.evil.test/" }),
		"without a user":             change(http, func(e *External) { e.URL = "https://a:b@x/" }),
		"in place of localhost":      change(http, func(e *External) { e.URL = "http://localhost:1/" }),
		"url must be an address":     change(http, func(e *External) { e.URL = "file:///x" }),
		"chunk 10:":                  change(http, func(e *External) { e.Chunk = 10 }),
		"overlap 200:":               change(http, func(e *External) { e.Chunk, e.Overlap = 300, 200 }),
		"chunk 2097152":              change(http, func(e *External) { e.Chunk = 2 << 20 }),
		"size 67108865":              change(http, func(e *External) { e.Size = 64<<20 + 1 }),
		"memory 1:":                  change(exec, func(e *External) { e.Memory = 1 }),
		"a program has no network":   change(exec, func(e *External) { e.AllowPrivate = []string{"10.0.0.1"} }),
		"allow_private ":             change(http, func(e *External) { e.URL, e.AllowPrivate = "https://llm.lan/", []string{"x"} }),
		"url has an invalid port":    change(http, func(e *External) { e.URL = "https://llm.lan:0/" }),
		"url has a host":             change(http, func(e *External) { e.URL = "https://*.lan/" }),
		"parallel is too much: 5 at once with 512 MiB each": change(exec, func(e *External) { e.Parallel = 5 }),
		"memory is too much: 4 at once with 513 MiB each":   change(exec, func(e *External) { e.Memory = 513 << 20 }),
		"want a memory of 32 MiB at most":                   change(exec, func(e *External) { e.Parallel, e.Memory = 64, 33<<20 }),
		"memory is too much: 1 at once":                     change(exec, func(e *External) { e.Parallel, e.Memory = 1, 1<<63-1 }),
		"parallel 65":                                       change(http, func(e *External) { e.Parallel = 65 }),
		"timeout 10m":                                       change(http, func(e *External) { e.Timeout = 10 * time.Minute }),
	} {
		if _, err := e.Declared(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", e, err, want)
		}
	}
}

// TestStored wants what was stored to be read as it was.
func TestStored(t *testing.T) {
	e, err := External{Name: "scan", Exec: []string{"/usr/bin/scan"}, Direction: Inbound, ReadOnly: []string{"/srv"}}.Declared()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(e)
	var again External
	if err == nil {
		err = json.Unmarshal(b, &again)
	}
	if err != nil || !reflect.DeepEqual(e, again) || !strings.Contains(string(b), `"direction":"results"`) {
		t.Errorf("%s became %+v, %v", b, again, err)
	}
	if json.Unmarshal([]byte(`{"direction":"outwards"}`), &again) == nil {
		t.Error("an unknown direction is read")
	}
}

// TestEgress: whoever asks a model reaches that alone.
func TestEgress(t *testing.T) {
	for url, one := range map[string]struct {
		private, host string
		port          uint16
		at            string
		reached       bool
	}{
		"http://127.0.0.1:11434/v1": {"", "127.0.0.1", 11434, "127.0.0.1", true}, "http://[::1]/v1": {"", "::1", 80, "::1", true},
		"https://api.example.org/v1": {"", "api.example.org", 443, "93.184.215.14", true}, "https://api.example.org/": {"", "api.example.org", 443, "127.0.0.1", false},
		"https://llm.lan/": {"10.0.0.0/8", "llm.lan", 443, "10.1.2.3", true}, "https://llm.lan/x": {"", "llm.lan", 443, "10.1.2.3", false},
	} {
		e := External{Name: "a", URL: url, Model: "m"}
		if one.private != "" {
			e.AllowPrivate = []string{one.private}
		}
		host, port, policy, err := e.Egress()
		if err != nil || host != one.host || port != one.port {
			t.Errorf("%s: %s, %d, %v", url, host, port, err)
		}
		d := policy.Decide(host, port)
		if _, ok := policy.Reach(d, port, netip.MustParseAddr(one.at), func(netip.Addr) bool { return false }); ok != one.reached {
			t.Errorf("%s at %s: %t", url, one.at, ok)
		}
		if policy.Decide("other.example.org", port).Verdict == egress.Allow || policy.Decide(host, port+1).Verdict == egress.Allow {
			t.Errorf("%s: more is allowed", url)
		}
	}
}
