// Package verify finds out whether a server's secrets are right: what the server offers and the trial that its
// declaration comes to in, one call that only reads, and a verification out, which is remembered.
package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Verifier verifies the secrets of servers. It is a registry.Verifier.
type Verifier struct {
	Gate enforce.OwnCalls // says which tools only read, and keeps the record
	*memory
}

// trial is a call that is to be made.
type trial struct {
	item      registry.Item
	arguments []byte
	answer    handover.Trial
	known     bool // by the service's entry: an error is about the secrets
	adapted   bool // errors have their classes of pfar's adapter
}

// Verify makes the call, if there is one that may be made.
func (v *Verifier) Verify(ctx context.Context, u *registry.Upstream, tools []registry.Item,
	proof string) units.Verification {
	server := u.Server()
	v.Gate.Await(ctx)
	t, why := choose(
		server.Trial,
		tools,
		func(i registry.Item) (string, error) { return v.Gate.OnlyReads(judged(u, i)) },
	)
	if why != "" {
		v.forget(server.Name)
		return result(units.Unverified, "", why)
	}
	is := v.call(ctx, u, t)
	if is.Result == units.Unverified {
		v.doubt(server.Name)
	} else {
		v.remember(server, proof, is)
	}
	return is
}

// choose returns the call of the service's entry, or else of a tool that only reads, as pfar's makers know of its
// service, and needs no argument. If there is neither it says why. What the owner says of a tool is said for clients'
// calls, and no reason for pfar to make one.
func choose(known *handover.Trial, tools []registry.Item, reads func(registry.Item) (string, error)) (t trial,
	why string) {
	why = "no call is known that would show it"
	if known != nil {
		t = trial{arguments: known.Arguments, answer: *known, known: true}
		at := slices.IndexFunc(tools, func(i registry.Item) bool { return i.Name == known.Tool })
		switch {
		case at < 0:
			why = "the server has no tool " + known.Tool
		case tools[at].CheckArguments(known.Arguments) != nil:
			why = known.Tool + " takes other arguments than it did"
		default:
			t.item = tools[at]
			if _, err := reads(t.item); err != nil {
				return t, known.Tool + " is not called: " + err.Error()
			}
			return t, ""
		}
	}
	for _, i := range tools {
		if i.CheckArguments(nil) != nil {
			continue
		}
		if from, err := reads(i); err == nil && strings.HasPrefix(from, "service: ") {
			return trial{item: i}, ""
		}
	}
	return t, why
}

// judged is a tool as the gate judges it, by what its server does not say.
func judged(u *registry.Upstream, i registry.Item) enforce.Item {
	owner, word := u.Declared()
	return enforce.Item{
		Owner: owner, Server: u.Server().Name, Declared: word, Now: u.Declared, Kind: gate.Tool, Name: i.Name, Fits: true,
	}
}

// call makes the call. Nobody can be asked anything in the course of it, and nobody but the owner hears what came of
// it.
func (v *Verifier) call(ctx context.Context, u *registry.Upstream, t trial) units.Verification {
	arguments := t.arguments
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	params := fmt.Appendf(nil, `{"name":%s,"arguments":%s}`, jsonrpc.Quote(t.item.Name), arguments)
	if !u.Hold() {
		return result(units.Unverified, t.item.Name, "the server sleeps")
	}
	defer u.Release()
	own, err := v.Gate.Enter(ctx, judged(u, t.item), enforce.Request{
		Method: string(mcp.MethodToolsCall), Arguments: arguments, Params: params,
	})
	if err != nil {
		return result(units.Unverified, t.item.Name, "it is not called: "+err.Error())
	}
	raw, err := u.Call(ctx, protocol.Call{Method: string(mcp.MethodToolsCall), Params: params, Own: true})
	own.End(outcome(raw, err), int64(len(raw)))
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
	t.adapted = u.Server().Adapted
	return judge(t, raw, err)
}

// outcome is the word of the record.
func outcome(raw []byte, err error) string {
	switch {
	case err != nil:
		return "failed"
	case bytes.Contains(raw, []byte(`"isError":true`)):
		return "tool_error"
	}
	return "ok"
}

// judge says what an answer shows. Of a call that pfar has chosen itself an error shows nothing: it may be about
// anything.
func judge(t trial, raw []byte, err error) units.Verification {
	name := t.item.Name
	isError, text := true, ""
	if err != nil {
		e, answered := errors.AsType[*jsonrpc.Error](err)
		if !answered || e.Raw == nil { // the server has not said so: it did not answer, or has ended
			return result(units.Unverified, name, err.Error())
		}
		text = message(e.Raw)
		if t.adapted && elsewhere(failure.Of(err).Class) {
			return result(units.Unverified, name, text)
		}
	} else {
		var whole bool
		if isError, text, whole = content(raw); !whole {
			return result(units.Unverified, name, "the tool asks for more than it was given")
		}
	}
	switch {
	case t.answer.Good(isError, text):
		return result(units.Verified, name, "")
	case !t.known || unreached(text):
		return result(units.Unverified, name, text)
	}
	return result(units.Invalid, name, text)
}

// elsewhere reports whether an error of this class is no word of the service's on its credentials.
func elsewhere(c failure.Class) bool { return c.Passing() || c == failure.TLS || c == failure.Schema }

// result is a verification, with words that can be shown to people.
func result(is, tool, words string) units.Verification {
	if is == units.Invalid && strings.TrimSpace(words) == "" {
		words = "the answer is not the one of a service that accepts them"
	}
	return units.Verification{Result: is, Tool: tool, Words: clean(words), At: time.Now().UTC().Truncate(time.Second)}
}
