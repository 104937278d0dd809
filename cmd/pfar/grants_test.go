package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/units/operator"
)

// TestGrants: the call that waits says which grants there can be, the question says what is granted, and a grant is
// shown and revoked.
func TestGrants(t *testing.T) {
	b := newDesk(t)
	if code, _, err := b.run(t, "grants"); code != exitOK || err != "nothing is granted\n" {
		t.Errorf("exit %d, %s", code, err)
	}
	id := b.sent(t, `{"to":"a"}`)
	once := b.sent(t, `{"to":"b"}`, func(r *approval.Request) { r.Decision.Once = true })
	for _, c := range []struct{ id, says string }{
		{id, "grant     --grant lets the session make up to 20 such calls more, of 4096 \n"},
		{id, "reads     no grant: it is not known to only read"},
		{once, "grant     no grant: it could carry private data out"},
		{once, "reads     no grant: it could carry private data out"},
	} {
		if code, out, err := b.run(t, "approvals", "show", c.id); code != exitOK || !strings.Contains(out, c.says) {
			t.Errorf("exit %d, want %q in %s%s", code, c.says, out, err)
		}
	}
	const again = ", and then %s up to %d times within 30m0s, with up to %d bytes of arguments in all, in session default"
	for want, flags := range map[string]grantFlags{
		"":                                 {},
		fmt.Sprintf(again, "it", 20, 1024): {tool: true, bytes: 1024},
		fmt.Sprintf(again, "what only reads public sources", 3, 4096): {public: true, calls: 3},
	} {
		if got := flags.words("default"); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	terms := []string{"--for", "1h", "--calls", "7", "--bytes", "2k"}
	code, out, err := b.run(t, append([]string{"approvals", "approve", id, "--yes", "--grant"}, terms...)...)
	if code != exitOK {
		t.Fatalf("exit %d, %s%s", code, out, err)
	}
	_, out, _ = b.run(t, "grants", "--json")
	var all []operator.Grant
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		t.Fatalf("%s, %v", out, err)
	}
	g := all[0]
	if g.Calls != 7 || g.Bytes != 2048 || g.Public || g.Used != 0 {
		t.Errorf("%+v", g)
	}
	code, out, _ = b.run(t, "grants")
	for _, says := range []string{g.ID, "mail.send", "laptop/default"} {
		if code != exitOK || !strings.Contains(out, says) {
			t.Errorf("exit %d, %s", code, out)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{}, exitUsage, "name one grant, or --all"}, {[]string{g.ID, "--all"}, exitUsage, "name one grant, or --all"},
		{[]string{"x"}, exitUsage, "write all its 26"}, {[]string{id}, exitNoSuch, "no grant has this id"},
		{[]string{strings.ToUpper(g.ID)}, exitOK, "revoked\n"}, {[]string{g.ID}, exitNoSuch, "no grant has this id"},
		{[]string{"--all"}, exitOK, "revoked\n"},
	} {
		code, out, err := b.run(t, append([]string{"grants", "revoke"}, c.args...)...)
		if code != c.code || !strings.Contains(out+err, c.says) {
			t.Errorf("%q: exit %d, %s%s", c.args, code, out, err)
		}
	}
}
