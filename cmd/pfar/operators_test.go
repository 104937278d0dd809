package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/units/control"
)

// people are two operators, one of whom is invited for another passkey, and a newcomer.
func people() control.Declarations {
	added := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	k := passkey.Key{ID: []byte("id"), Public: []byte("public"), Origin: "https://pfar.example.com:7443", Added: added}
	invited := control.Invited{Origin: k.Origin, Until: added.Add(time.Hour)}
	alice, carol := invited, invited
	alice.Name, alice.Role = "alice", passkey.Approve
	carol.Name, carol.Role = "carol\x1b[2J", passkey.Look
	return control.Declarations{
		Operators: []passkey.Operator{
			{Name: "alice", Role: passkey.Approve, Keys: []passkey.Key{k, k}}, {Name: "bob", Role: passkey.Change},
		},
		Invited: []control.Invited{alice, carol},
		Link:    "https://pfar.example.com:7443/enroll/NONCE",
	}
}

// TestOperator: the link of an invitation and what it does are printed, the list says who is there and who is invited,
// and only who is there or invited is removed.
func TestOperator(t *testing.T) {
	b := newBench(t, "")
	p := b.pfard(t, control.Report{}, func(*fakePfard, control.Request) error { return nil })
	p.people = people()
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		n := b.again("")
		if code := n.run(t.Context(), append([]string{"operator"}, args...)); code != want {
			t.Errorf("%q: exit %d, want %d: %s%s", args, code, want, n.out, n.err)
		}
		return n.out.String(), n.err.String()
	}
	asked := func() (list []string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range p.requests {
			words := string(r.Verb)
			if o := r.Operator; o != nil {
				words += fmt.Sprintf(" %s %s %s", o.Name, o.Role, o.Origin)
			}
			list = append(list, words)
		}
		p.requests = nil
		return list
	}
	_, says := run(exitOK, "invite", "alice", "--role", "approve", "--at", "https://pfar.example.com:7443")
	const link = "\nGive alice this link:\n\n  https://pfar.example.com:7443/enroll/NONCE\n\n" +
		"The link works once, within an hour. Whoever first adds a passkey with it becomes alice.\n"
	if says != link {
		t.Errorf("invite says %q, want %q", says, link)
	}
	run(exitOK, "invite", "alice")
	const wanted = "invite alice approve https://pfar.example.com:7443; invite alice  "
	if got := strings.Join(asked(), "; "); got != wanted {
		t.Errorf("pfard is asked for %q, want %q", got, wanted)
	}
	said, _ := run(exitOK, "invite", "alice", "--json")
	var answer map[string]string
	if err := json.Unmarshal([]byte(said), &answer); err != nil || answer["name"] != "alice" ||
		answer["link"] != p.people.Link {
		t.Errorf("as JSON it says %s; %v", said, err)
	}
	list, _ := run(exitOK, "list")
	added := minute(p.people.Operators[0].Keys[0].Added)
	for _, line := range []string{"alice  approve  2         " + added, "bob    change   0"} {
		if !strings.Contains(list, "\n"+line) {
			t.Errorf("the list lacks %q:\n%s", line, list)
		}
	}
	if strings.Contains(list, "\x1b") || !strings.Contains(list, "\n\nINVITED") {
		t.Errorf("the list is\n%s", list)
	}
	var all struct {
		Operators []passkey.Operator
		Invited   []control.Invited
	}
	if said, _ := run(exitOK, "list", "--json"); json.Unmarshal([]byte(said), &all) != nil || len(all.Operators) != 2 ||
		len(all.Invited) != 2 {
		t.Errorf("as JSON the list is %s", said)
	}
	asked()
	if _, says := run(exitNoSuch, "remove", "dora"); !strings.Contains(says, "pfar operator list") {
		t.Errorf("removing nobody: %s", says)
	}
	run(exitOK, "remove", "bob")
	run(exitOK, "remove", "carol\x1b[2J")
	const removed = "operators; operators; dismiss bob  ; operators; dismiss carol\x1b[2J  "
	if got := strings.Join(asked(), "; "); got != removed {
		t.Errorf("pfard is asked for %q, want %q", got, removed)
	}
	for _, name := range []string{"bob", "carol\x1b[2J", "dora"} { // who have no passkey
		if _, says := run(exitNoSuch, "role", name, "look"); !strings.Contains(says, "pfar operator list") {
			t.Errorf("the role of %q: %s", name, says)
		}
	}
	asked()
	if said, _ := run(exitOK, "role", "alice", "look"); said != "alice has the role look\n" {
		t.Errorf("a role says %q", said)
	}
	if said, _ := run(exitOK, "role", "alice", "change", "--json"); !strings.Contains(said, `"role": "change"`) {
		t.Errorf("a role says, as JSON, %q", said)
	}
	const roles = "operators; change-role alice look ; operators; change-role alice change "
	if got := strings.Join(asked(), "; "); got != roles {
		t.Errorf("pfard is asked for %q, want %q", got, roles)
	}
	p.people = control.Declarations{}
	if said, says := run(exitOK, "list"); said != "" || !strings.Contains(says, "pfar operator invite NAME") {
		t.Errorf("without operators: %q %q", said, says)
	}
	said, _ = run(exitOK, "list", "--json")
	if strings.Join(strings.Fields(said), "") != `{"invited":[],"operators":[]}` {
		t.Errorf("without operators, as JSON: %s", said)
	}
}

// TestOperatorRefused: what pfard refuses is said as it says it, with the exit code for it.
func TestOperatorRefused(t *testing.T) {
	b := newBench(t, "")
	refused := control.ErrDenied
	b.pfard(t, control.Report{}, func(*fakePfard, control.Request) error { return fmt.Errorf("%w: so", refused) })
	for _, want := range []struct {
		err  error
		code int
	}{{control.ErrDenied, exitDenied}, {control.ErrInvalid, exitUsage}} {
		refused = want.err
		for _, args := range []string{"invite alice", "list", "remove alice", "role alice look"} {
			n := b.again("")
			code := n.run(t.Context(), append([]string{"operator"}, strings.Fields(args)...))
			if code != want.code || !strings.Contains(n.err.String(), ": so") {
				t.Errorf("%q: %d, want %d: %s", args, code, want.code, n.err)
			}
		}
	}
}
