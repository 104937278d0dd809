package registry

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
	"github.com/pfar/pfar/units/operator"
)

func TestSemantics(t *testing.T) {
	for _, c := range []struct{ annotations, owner, want string }{
		{"", "", "write"},
		{"{}", "", "write"},
		{"null", "", "write"},
		{`{"readOnlyHint":true}`, "", "read"},
		{`{"readOnlyHint":true,"destructiveHint":false}`, "", "read"},
		{`{"readOnlyHint":true,"destructiveHint":true}`, "", "write"}, // a contradiction writes
		{`{"readOnlyHint":false}`, "", "write"},
		{`{"destructiveHint":true}`, "", "write"},
		{`{"destructiveHint":false}`, "", "write"},
		{`{"readOnlyHint":"true"}`, "", "write"},
		{`{"readOnlyHint":1}`, "", "write"},
		{`{"readOnlyHint":null}`, "", "write"},
		{`{"readOnlyHint":true,"destructiveHint":"no"}`, "", "write"},
		{`{"readOnlyHint":true}`, "write", "write"},
		{`{"destructiveHint":true}`, "read", "read"},
		{"", "read", "read"},
		{`{"readOnlyHint":true}`, "neither", "read"},
	} {
		if got := semantics([]byte(c.annotations), c.owner); got != c.want {
			t.Errorf("%q, owner %q: %s, want %s", c.annotations, c.owner, got, c.want)
		}
	}
}

func TestLabel(t *testing.T) {
	server := handover.Server{Name: "notion", Label: "internal"}
	config := protocol.Config{Server: server, Memory: keep.Volatile(), Limits: new(protocol.Limits)}
	u := &Upstream{Conversation: protocol.New(config)}
	const ours = `"pfar/server":"notion","pfar/label":"internal"`
	for in, want := range map[string]string{
		`{"_meta":{}}`: `{"_meta":{` + ours + `}}`,
		`{"a":1e2,"_meta": { "k" : [1.0] },"b":2}`:                `{"a":1e2,"_meta": {` + ours + `, "k" : [1.0] },"b":2}`,
		`{"_meta":{"pfar/label":"public","PFAR/server":"other"}}`: `{"_meta":{` + ours + `}}`,
		`{"_meta":null}`: `{"_meta":{` + ours + `}}`,
	} {
		ms, err := jsonrpc.Object([]byte(in), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(u.Label(u.Server().Label, []byte(in), ms)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", in, got, want)
		}
	}
}

// TestWordOn: the owner's word on tools of many names, the one that says most of the name first.
func TestWordOn(t *testing.T) {
	tools := map[string]handover.Tool{
		"*": {Semantics: "read"}, "send_*": {Semantics: "write"}, "send_draft": {Semantics: "read"}, "send_all": {Aliases: []string{"all"}}, "a*": {Semantics: "read"}, "*a": {Semantics: "write"},
	}
	for name, want := range map[string]string{"get": "read", "send_mail": "write", "send_draft": "read", "send_all": "write", "aba": "write"} {
		for range 20 { // a map has no order
			if got := wordOn(tools, name); got.Semantics != want || (name == "send_all") != (len(got.Aliases) == 1) {
				t.Fatalf("%s: %+v, want %s", name, got, want)
			}
		}
	}
	if got := wordOn(nil, "get"); got.Semantics != "" {
		t.Errorf("nothing was said, and it is %+v", got)
	}
}

// TestGranted: a tool that needs what the token lacks is refused with what its owner can type, and no other one is.
func TestGranted(t *testing.T) {
	const login = "its owner can run pfar login notion --scope write"
	server := handover.Server{Name: "notion", Tools: map[string]handover.Tool{
		"send_*": {Scopes: []string{"write"}, Lacks: login}, "get": {Scopes: []string{"read"}},
		"send_m*": {Scopes: []string{"mail", "write"}, Granted: []string{"mail"}},
	}}
	config := protocol.Config{Server: server, Memory: keep.Volatile(), Limits: new(protocol.Limits)}
	u := &Upstream{Conversation: protocol.New(config)}
	for tool, want := range map[string]operator.Scopes{
		"send_mail": {Required: []string{"mail", "write"}, Granted: []string{"mail"}, Lacks: login},
		"get":       {Required: []string{"read"}},
		"other":     {},
	} {
		if got := u.Scopes(tool); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", tool, got)
		}
	}
	for tool, want := range map[string]bool{
		"send_mail": false, "send_": false, "get": true, "sends": true, "x_send_y": true,
	} {
		err := u.Granted(tool)
		if (err == nil) != want {
			t.Errorf("%s: %v", tool, err)
		}
		if err == nil {
			continue
		}
		e, ok := errors.AsType[*failure.Error](err)
		if !ok || e.Class != failure.Forbidden || e.Server != "notion" || !strings.Contains(e.Advice, login) {
			t.Errorf("%s: %+v", tool, err)
		}
	}
}
