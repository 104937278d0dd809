package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestNewToken: a server that nobody can sign in to is called again once its owner has typed something else.
func TestNewToken(t *testing.T) {
	for remedy, want := range map[units.Remedy][2]string{
		{}: {
			"signed in", "its owner signs in: pfar login fs; pfar status fs shows which scopes it lacks",
		},
		units.ToDo(units.StoreSecret, "k"): {"given it another token", "its owner gives it another token: pfar vault set k"},
	} {
		refusal := failure.As(failure.Unauthorized, "fs", errors.New("401"))
		err := unsigned(handover.Server{Name: "fs", Calls: handover.Calls{NewToken: remedy}}, refusal)
		got := failure.Of(err)
		says := `server "fs" cannot be called before its owner has ` + want[0]
		e, ok := errors.AsType[*failure.Error](err)
		if !ok || got.Class != failure.Unauthorized || e.Advice != want[1] || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, %+v", remedy, err, e)
		}
	}
}

// TestNotMCP: at a server's address is no MCP server if it answers the handshake by HTTP as none does. A fault of the
// network, a server in trouble and one that refuses who asks say nothing about that.
func TestNotMCP(t *testing.T) {
	for _, c := range []struct {
		class  failure.Class
		status int
		want   bool
	}{
		{failure.Schema, 200, true}, {failure.Schema, 405, true}, {failure.NotFound, 404, true},
		{failure.NetworkError, 302, true},
		{failure.Schema, 0, false}, {failure.NetworkError, 0, false}, {failure.TLS, 0, false}, {failure.Timeout, 504, false},
		{failure.ServerError, 503, false}, {failure.RateLimited, 429, false}, {failure.Unauthorized, 401, false},
		{failure.Forbidden, 403, false}, {failure.Schema, 400, false}, {failure.Schema, 422, false},
	} {
		err := failure.As(c.class, "s", errors.New("m"))
		err.Status = c.status
		if got := shown(fmt.Errorf("initializing: %w", err)).NotMCP; got != c.want {
			t.Errorf("%s with the status %d: %v", c.class, c.status, got)
		}
	}
}

// TestAfter: when a service wants to be asked again counts if it is why the handshake has failed.
func TestAfter(t *testing.T) {
	for class, want := range map[failure.Class]int64{
		failure.RateLimited: 30, failure.ServerError: 30, failure.NetworkError: 0, failure.Schema: 0, failure.Unauthorized: 0,
	} {
		err := failure.As(class, "s", errors.New("m"))
		err.After = 30
		if got := shown(fmt.Errorf("initializing: %w", err)).After; got != want {
			t.Errorf("%s: %d, want %d", class, got, want)
		}
	}
}

// TestOffline: the error of a server that is offline has the class of the last try, and says when the next one is.
func TestOffline(t *testing.T) {
	for class, want := range map[failure.Class]failure.Class{
		"": failure.NetworkError, failure.TLS: failure.TLS, failure.RateLimited: failure.RateLimited,
		failure.Timeout: failure.Timeout, failure.ServerError: failure.ServerError,
		failure.NetworkError: failure.NetworkError,
	} {
		got := offline("s", State{Offline: true, Reason: "why", Next: time.Now().Add(time.Hour), failed: class})
		soon := got.After > 0 && got.After <= 3600
		if got.Class != want || !soon || !strings.Contains(got.Error(), "why") {
			t.Errorf("%q: %+v, %v", class, got.Failure, got)
		}
	}
}

// TestUnauthorized: a person is to sign in if pfar's adapter says so of a server, or that scopes are missing.
func TestUnauthorized(t *testing.T) {
	for _, class := range failure.Classes() {
		err := failure.As(class, "s", &jsonrpc.Error{Raw: []byte(`{"code":1,"message":"m"}`)})
		got := shown(fmt.Errorf("a step: %w", err))
		if got.Unauthorized != (class == failure.Unauthorized) || got.Scopes != nil {
			t.Errorf("%s: %+v", class, got)
		}
	}
	said := &jsonrpc.Error{Raw: []byte(`{"code":1,"message":"m","data":{"pfar/error":{"class":"unauthorized"}}}`)}
	if shown(said).Unauthorized {
		t.Error("what a server says in pfar's name counts")
	}
	if shown(errors.New("unauthorized")).Unauthorized {
		t.Error("any error is one")
	}
	for text, want := range map[string][]string{"a b": {"a", "b"}, "": nil, "a $(id)": nil, "[redacted: TOKEN]": nil} {
		err := failure.As(failure.Forbidden, "s", said)
		const told = `{"class":"forbidden","error":"insufficient_scope","scope":%q}`
		err.Wants = failure.ReadDemand(fmt.Appendf(nil, told, text))
		got := shown(fmt.Errorf("listing tools: %w", err))
		if !got.Unauthorized || !slices.Equal(got.Scopes, want) {
			t.Errorf("%q: %+v", text, got)
		}
	}
	err := failure.As(failure.Forbidden, "s", said)
	err.Wants = failure.ReadDemand([]byte(`{"class":"forbidden","error":"invalid_token","scope":"a"}`))
	if shown(err).Unauthorized {
		t.Error("a token that may not do this alone is to be replaced")
	}
}
