package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/gate"
)

// TestManualKnowsEveryLimit: each limit stands in the manual with its value, and the manual has no other.
func TestManualKnowsEveryLimit(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar-gateway.8")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(b)
	_, limits, ok := strings.Cut(manual, ".Sh LIMITS")
	if !ok {
		t.Fatal("the manual has no section LIMITS")
	}
	limits, _, _ = strings.Cut(limits, ".Sh ERRORS")
	ofServers, ofClients, _ := strings.Cut(limits, ".Ss Of clients")
	for section, defaults := range map[string]any{ofServers: registry.DefaultLimits(), ofClients: serve.DefaultLimits()} {
		v, fields := reflect.ValueOf(defaults), 0
		for _, f := range reflect.VisibleFields(v.Type()) {
			if f.Anonymous {
				continue
			}
			fields++
			row := fmt.Sprintf(".It Cm %s Ta %v Ta ", f.Name, v.FieldByIndex(f.Index).Interface())
			if strings.Count(section, row) != 1 {
				t.Errorf("the manual lacks %q", row)
			}
		}
		if n := strings.Count(section, ".It Cm "); n != fields {
			t.Errorf("the manual has %d limits where there are %d", n, fields)
		}
	}
	a := approval.DefaultLimits()
	for _, says := range []string{
		fmt.Sprintf("waits for %.0f s.", a.Wait.Seconds()), fmt.Sprintf("expires after %.0f s,", a.Life.Seconds()),
		fmt.Sprintf("At once %d calls can wait, %d of one client, %[2]d of one server, and %d of one client to one server.", a.Open, a.OfOne, a.OfOne/2),
		fmt.Sprintf("pfar asks about %d calls of a client at once, and then about one more every %.0f s.",
			a.Burst, a.Every.Seconds()),
		fmt.Sprintf("gives calls in flight %.0f seconds,", drainTime.Seconds()),
		fmt.Sprintf("requests wait, for at most %.0f seconds;", patience.Seconds()),
		fmt.Sprintf(", %d at most. The operator's socket accepts a quarter of this number.", maxConnections),
		fmt.Sprintf("The socket of passkeys accepts %d at most.", maxPasskey),
	} {
		if !strings.Contains(strings.ReplaceAll(manual, "\n", " "), says) {
			t.Errorf("the manual does not say %q", says)
		}
	}
	for _, code := range []int{protocol.CodeUnavailable, protocol.CodeBusy, call.CodeResult, clients.CodeNoServer, clients.CodeNoSession, approval.Code} {
		if !strings.Contains(manual, fmt.Sprintf(".It Li %d Ta ", code)) {
			t.Errorf("the manual lacks the code %d", code)
		}
	}
	for _, line := range strings.Split(usage, "\n") {
		if flag, _, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(flag, "--") && !strings.Contains(strings.ReplaceAll(manual, "\n", " "), ".It Fl -"+flag[2:]+" ") {
			t.Errorf("the manual lacks %s", flag)
		}
	}
}

// TestManualKnowsFences: a fence stands in the manual as it is made, and so does each member of _meta that the code
// writes.
func TestManualKnowsFences(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar-gateway.8")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.ReplaceAll(string(b), `\-`, "-")
	of := fence.Meta{Server: "notion", Tool: "search", Label: gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw}}
	number := fence.ID{0x5d, 0x0e, 0x8b, 0x1f, 0xc2, 0x7a, 0x49, 0x36, 0xa1, 0xd4, 0xe0, 0xb7, 0xc3, 0xf2, 0x9a, 0x68}
	if shown := string(fence.Fence(nil, "The text, of as many lines as it has.", of, number)); !strings.Contains(manual, ".Bd -literal\n"+shown+"\n.Ed\n") {
		t.Errorf("the manual does not show a fence as it is: %s", shown)
	}
	for _, neutral := range []string{fence.Neutral, fence.Role} {
		if !strings.Contains(manual, ".Li "+neutral) {
			t.Errorf("the manual lacks %s", neutral)
		}
	}
	written := map[string]bool{strings.TrimPrefix(failure.Key, "pfar/"): true}
	key := regexp.MustCompile(`"pfar/([a-z]+)"`)
	err = fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range key.FindAllStringSubmatch(string(b), -1) {
			written[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(manual, ".Ss Members of _meta")
	section, _, _ = strings.Cut(section, ".Ss Pins")
	said := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^\.It Li .*$`).FindAllString(section, -1) {
		for _, m := range regexp.MustCompile(`pfar/([a-z]+)`).FindAllStringSubmatch(line, -1) {
			said[m[1]] = true
		}
	}
	if !maps.Equal(written, said) {
		t.Errorf("the manual has the members %q, and the code writes %q", slices.Sorted(maps.Keys(said)), slices.Sorted(maps.Keys(written)))
	}
}
