package protocol

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/jsonrpc"
)

// Ask is a request of a server's to the client whose call it serves.
type Ask struct {
	Server string
	Method string
	Params []byte

	terms   *Terms
	flights *flights
	outbox  *outbox
	of      *waiting // the call that it is about, nil for none
	id      []byte   // the server's
	once    sync.Once

	mu   sync.Mutex
	over bool   // nobody wants an answer any more
	gone func() // to be called then
}

// Declared is what the owner says of the server, nil for nothing.
func (a *Ask) Declared() []byte { return a.terms.Server().Declared }

// questionMembers are those of a question that a person sees, or that decide what becomes of it.
var questionMembers = []string{"message", "mode", "url", "elicitationId", "requestedSchema", "messages", "systemPrompt", "_meta"}

// Plain reports what in a question's parameters two parsers could read differently: the one that is looked at here must
// be the one that a client shows.
func Plain(params []byte) error {
	if params == nil {
		return nil
	}
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		return err
	}
	return ms.LookAlike(questionMembers...)
}

// Capability returns what a client must be capable of, and a server be allowed, for a request of the method; "" is a
// method that servers do not have.
func Capability(method string) string {
	switch mcp.MCPMethod(method) {
	case mcp.MethodSamplingCreateMessage:
		return "sampling"
	case mcp.MethodElicitationCreate:
		return "elicitation"
	case mcp.MethodListRoots:
		return "roots"
	}
	return ""
}

// Answer gives the server the client's result.
func (a *Ask) Answer(result []byte) { a.reply("result", result) }

// Fail gives the server an error instead.
func (a *Ask) Fail(e *jsonrpc.Error) { a.reply("error", e.JSON()) }

func (a *Ask) reply(member string, value []byte) {
	a.once.Do(func() { a.send(member, value) })
}

func (a *Ask) send(member string, value []byte) {
	a.flights.answered(a)
	line := append(jsonrpc.AppendHead(make([]byte, 0, 64+len(value)), a.id, member), value...)
	a.outbox.tell(jsonrpc.OneLine(append(line, "}\n"...)))
}

// Withdrawn has f called when nobody wants the answer any more, at once if that is so already.
func (a *Ask) Withdrawn(f func()) {
	a.mu.Lock()
	over := a.over
	a.gone = f
	a.mu.Unlock()
	if over {
		f()
	}
}

// GiveUp fails a question that the client has not answered, and takes it back from there. An answered one stays
// answered.
func (a *Ask) GiveUp(e *jsonrpc.Error) {
	open := false
	a.once.Do(func() {
		open = true
		a.send("error", e.JSON())
	})
	if open {
		a.takeBack()
	}
}

// Over reports whether nobody wants an answer any more.
func (a *Ask) Over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.over
}

// takeBack says that the answer is not wanted any more.
func (a *Ask) takeBack() {
	a.mu.Lock()
	gone := a.gone
	if a.over {
		gone = nil
	}
	a.over = true
	a.mu.Unlock()
	if gone != nil {
		gone()
	}
}

var errCapabilities = errors.New("clientCapabilities is not an object")

// shapes are what a client's capabilities may say, by name: any other member would be a text of the client's choosing
// that no gate has seen.
var shapes = map[string][]string{"elicitation": {"form", "url"}, "roots": {"listChanged"}, "sampling": {"context", "tools"}}

// Allow returns of a client's capabilities those that the server may make use of, in the shapes that the protocol gives
// them.
func Allow(have []byte, allowed []string) ([]byte, error) {
	if have == nil {
		return []byte("{}"), nil
	}
	ms, err := jsonrpc.Object(have, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCapabilities, err)
	}
	return shaped(ms, allowed, func(i int) []byte {
		of, _ := jsonrpc.Object(ms[i].Raw(), nil)
		return shaped(of, shapes[string(ms[i].Name)], func(i int) []byte {
			if raw := of[i].Raw(); string(raw) == "true" || string(raw) == "false" {
				return raw
			}
			return []byte("{}")
		})
	}), nil
}

// shaped is the object of the members with these names.
func shaped(ms jsonrpc.Members, names []string, value func(i int) []byte) []byte {
	b := []byte{'{'}
	for i := range ms {
		if !slices.Contains(names, string(ms[i].Name)) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, jsonrpc.Quote(string(ms[i].Name))...), ':'), value(i)...)
	}
	return append(b, '}')
}
