package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestNewToken: a server that nobody can sign in to is called again once its owner has typed something else.
func TestNewToken(t *testing.T) {
	for command, want := range map[string][2]string{
		"": {
			"signed in", "its owner signs in: pfar login fs; pfar status fs shows which scopes it lacks",
		},
		"pfar vault set k": {"given it another token", "its owner gives it another token: pfar vault set k"},
	} {
		refusal := failure.As(failure.Unauthorized, "fs", errors.New("401"))
		err := unsigned(handover.Server{Name: "fs", Calls: handover.Calls{NewToken: command}}, refusal)
		got := failure.Of(err)
		says := `server "fs" cannot be called before its owner has ` + want[0]
		e, ok := errors.AsType[*failure.Error](err)
		if !ok || got.Class != failure.Unauthorized || e.Advice != want[1] || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %+v", command, err, e)
		}
	}
}

// TestUnauthorized: a person is to sign in if pfar's adapter says so of a server, or that scopes are missing.
func TestUnauthorized(t *testing.T) {
	for _, class := range failure.Classes() {
		err := failure.As(class, "s", &jsonrpc.Error{Raw: []byte(`{"code":1,"message":"m"}`)})
		got := unauthorized(fmt.Errorf("a step: %w", err))
		if got.Unauthorized != (class == failure.Unauthorized) || got.Scopes != nil {
			t.Errorf("%s: %+v", class, got)
		}
	}
	said := &jsonrpc.Error{Raw: []byte(`{"code":1,"message":"m","data":{"pfar/error":{"class":"unauthorized"}}}`)}
	if unauthorized(said).Unauthorized {
		t.Error("what a server says in pfar's name counts")
	}
	if unauthorized(errors.New("unauthorized")).Unauthorized {
		t.Error("any error is one")
	}
	for text, want := range map[string][]string{"a b": {"a", "b"}, "": nil, "a $(id)": nil, "[redacted: TOKEN]": nil} {
		err := failure.As(failure.Forbidden, "s", said)
		const told = `{"class":"forbidden","error":"insufficient_scope","scope":%q}`
		err.Wants = failure.ReadDemand(fmt.Appendf(nil, told, text))
		got := unauthorized(fmt.Errorf("listing tools: %w", err))
		if !got.Unauthorized || !slices.Equal(got.Scopes, want) {
			t.Errorf("%q: %+v", text, got)
		}
	}
	err := failure.As(failure.Forbidden, "s", said)
	err.Wants = failure.ReadDemand([]byte(`{"class":"forbidden","error":"invalid_token","scope":"a"}`))
	if unauthorized(err).Unauthorized {
		t.Error("a token that may not do this alone is to be replaced")
	}
}
