package registry

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/jsonrpc"
)

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
