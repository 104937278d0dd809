package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// TestDeclareClient: the user who runs pfard declares a client at a console, with the profile strict. It replaces no
// file, names only servers that are declared, and is recorded.
func TestDeclareClient(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "b.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	dir := filepath.Join(t.TempDir(), "clients.d")
	d.within(t, func() { d.clientele.dir = dir })
	declare := func(p control.Peer, name string, servers ...string) (string, error) {
		o := attach.Order{Act: attach.OrderClient, Client: name, Servers: strings.Join(servers, " ")}
		done, err := d.ordered(t.Context(), p, o)
		return done.Token, err
	}
	if token, err := declare(control.Peer{UID: os.Getuid() + 4711}, "desk", "b"); token != "" ||
		!errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %q, %v", token, err)
	}
	for name, servers := range map[string][]string{
		"": {"b"}, "../desk": {"b"}, "De sk": {"b"}, access.Operator: {"b"}, "none": nil, "strange": {"nobody"},
		"path": {"../b"}, "twice": {"b", "b"}, "mixed": {"b", access.Every},
	} {
		if token, err := declare(operator(), name, servers...); token != "" || !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%q with %q: %q, %v", name, servers, token, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("there is %v", entries)
	}
	tokens := map[string]string{}
	for name, servers := range map[string][]string{"desk": {"b"}, "phone": {access.Every}} {
		token, err := declare(operator(), name, servers...)
		if err != nil || !strings.HasPrefix(token, "pfar_") || tokens[token] != "" {
			t.Fatalf("%s: %q, %v", name, token, err)
		}
		tokens[token] = name
		text, err := os.ReadFile(filepath.Join(dir, name+".hcl"))
		if err != nil || strings.Contains(string(text), token) {
			t.Errorf("%s: %s %v", name, text, err)
		}
		if _, err := declare(operator(), name, servers...); !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%s a second time: %v", name, err)
		}
	}
	if err := d.do(func() error { d.reload(); return nil }); err != nil {
		t.Fatal(err)
	}
	list, _, _ := d.clientele.now()
	for token, name := range tokens {
		i := slices.IndexFunc(list, func(c access.Client) bool {
			return c.Name == name && c.Profile == "strict" && slices.Contains(c.Tokens, access.DigestOf([]byte(token)))
		})
		if i < 0 {
			t.Errorf("%s is not there: %+v", name, list)
		}
	}
	asked := 0
	for _, r := range d.audit.recorded(t, ownChain) {
		if r.Kind == audit.Policy && r.Method == "declare" && r.User != "" && r.Channel == byConsole {
			asked++
		}
	}
	if asked != 2 {
		t.Errorf("%d orders are recorded", asked)
	}
}
