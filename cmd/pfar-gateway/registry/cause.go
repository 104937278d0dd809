package registry

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// notReady is why a server is given up that takes too long to come up.
func notReady(within time.Duration) failure.Fact {
	return failure.Fact(fmt.Sprintf("the server was not ready within %v", within))
}

// fact returns why a conversation has ended, as clients may have it. The error may quote the server, and that has
// passed no gate: its owner finds it in the status and the log.
func fact(why error) failure.Fact {
	if f, ok := errors.AsType[failure.Fact](why); ok {
		return f
	}
	switch failure.Of(why).Class {
	case failure.RateLimited:
		return "the service wants to be asked later"
	case failure.Unauthorized:
		return "the service does not accept the server's credentials"
	case failure.Forbidden:
		return "the service does not let the server in"
	case failure.NotFound:
		return "the service does not have what pfar asks for"
	case failure.Timeout:
		return "the server does not answer in time"
	case failure.ServerError:
		return "the server answers with an error"
	case failure.NetworkError:
		return "the server cannot be reached"
	case failure.TLS:
		return "the service does not prove who it is"
	case failure.Died:
		return "the server has ended"
	}
	return "the server does not keep to the protocol"
}

// refused returns why pfard has not started a process. What it says of a server that does not run may quote the server.
func refused(why error) failure.Fact {
	switch r, ok := errors.AsType[*control.Refused](why); {
	case ok && r.Wait.Remedy.Act != "":
		return failure.Fact("the server waits until its owner types: " + r.Wait.Remedy.Command)
	case ok && r.Wait.For == units.WaitRefresh:
		return "the server's token is being refreshed"
	case ok && r.Code != control.CodeDown:
		return failure.Fact(r.Message)
	}
	return "pfard cannot start the server now; pfar status says why"
}

// unsigned is why a server cannot be called, if that is that a person has to sign in, and nil otherwise. why is the end
// of a conversation, or what pfard says.
func unsigned(server handover.Server, why error) error {
	r, ok := errors.AsType[*control.Refused](why)
	if ok && r.Wait.NeedsLogin() || shown(why).Unauthorized {
		return loginFirst(server)
	}
	return nil
}

func loginFirst(server handover.Server) error {
	return signedOut(server, "server %q cannot be called before its owner has %s", server.Name, signedIn(server))
}

// signedIn is what an owner does who has a server accept pfar, in words that follow "has".
func signedIn(server handover.Server) string {
	if server.NewToken.Act != "" {
		return "given it another token"
	}
	return "signed in"
}

// standing returns the reason of the state in which pfard reports a server that does not run.
func standing(in control.State) failure.Fact {
	switch in {
	case control.Stopped:
		return "the server is stopped"
	case control.BackOff:
		return "the server has crashed; pfard starts it again in a moment"
	case control.Waiting:
		return "the server waits for its owner"
	case control.Offline:
		return "the server cannot be reached"
	}
	return "the server has failed"
}

// signedOut is the error of what needs a server that does not accept pfar before a person has done something.
func signedOut(server handover.Server, format string, args ...any) error {
	e := failure.As(failure.Unauthorized, server.Name, jsonrpc.Errorf(protocol.CodeUnavailable, format, args...))
	e.Advice = "its owner signs in: " + server.SignIn(nil).Command + "; pfar status " + server.Name +
		" shows which scopes it lacks"
	if server.NewToken.Act != "" {
		e.Advice = "its owner gives it another token: " + server.NewToken.Command
	}
	return e
}

// shown says what a process's error has shown of its server: the server refuses the token, wants more scopes, wants to
// be asked later, or does not speak MCP. A page, a redirect to another host, or a status such as 404 shows that. The
// launcher believes this only of pfar's own adapter.
func shown(err error) (s handover.Shown) {
	e, ok := errors.AsType[*failure.Error](err)
	if !ok {
		return s
	}
	s.Class = string(e.Class)
	s.Unauthorized = e.Class == failure.Unauthorized || e.Wants.Code == oauth.InsufficientScope
	if units.ScopeOptions(e.Wants.Scopes) != "" {
		s.Scopes = e.Wants.Scopes
	}
	if s.After = e.After; e.Class != failure.RateLimited && e.Class != failure.ServerError {
		s.After = 0
	}
	switch e.Class {
	case failure.Schema, failure.NotFound, failure.NetworkError:
		// A server that wants a header or another version answers with the first two.
		s.NotMCP = !slices.Contains([]int{http.StatusBadRequest, http.StatusUnprocessableEntity, 0}, e.Status)
	}
	return s
}
