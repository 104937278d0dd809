package clients

import (
	"net/http"
	"strings"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Errors of a path that leads nowhere. What a client may not use is answered as what there is not.
const (
	CodeNoServer  = -32013 // no server, or no client, of that name
	CodeNoSession = -32014 // the operator has minted no session of that handle for this client
)

// maxSegments is of a path behind /mcp: client, session, server.
const maxSegments = 3

// Caller is the client behind a request, and the endpoint that it asks.
type Caller struct {
	Bound    Binding
	Member   *Member // nil: nobody who is let in
	Local    bool    // it is on the Unix socket
	Named    bool    // an operator on the Unix socket has named the client
	Endpoint string  // the server's name, "" for all
}

// Identity is who the gate sees: label is the handle of a label that the connection alone has, "" for none. A person is
// the operator, on the Unix socket and by name: neither a client's name nor its profile makes it that.
func (c *Caller) Identity(label string) enforce.Identity {
	id := enforce.Identity{
		Client: c.Bound.Client, Handle: c.Bound.Handle, Profile: c.Member.Profile, Proof: c.Bound.Proof(), Rights: c.Member.Rights,
		Person: c.person(), Begun: c.Bound.Begun,
	}
	if label != "" {
		id.Handle = label
	}
	return id
}

func (c *Caller) person() bool { return c.Bound.Acting && c.Bound.Client == access.Operator }

// Catalogue returns the tools, prompts and resources that the client may see: only this leads from a request to a
// server. A person also sees those that no profile could call.
func (c *Caller) Catalogue(of *registry.Registry) *registry.Catalogue {
	if c.person() {
		return of.For(c.Member.Rights, "")
	}
	return of.For(c.Member.Rights, c.Member.Profile)
}

// Segments takes apart the path of an endpoint: /mcp, /mcp/SERVER, /mcp/CLIENT, /mcp/CLIENT/SESSION or
// /mcp/CLIENT/SESSION/SERVER. It reports false if it is none: names are plain, so one that is written in another way,
// with escapes or dots, is none.
func Segments(path, escaped string) ([]string, bool) {
	return segments("/mcp", path, escaped, maxSegments)
}

// FlowSegments takes apart the path of flows: /flows, /flows/CLIENT or /flows/CLIENT/SESSION, like Segments.
func FlowSegments(path, escaped string) ([]string, bool) {
	list, ok := segments(FlowPath, path, escaped, 2)
	if len(list) == 1 { // no server has a place here
		list = append(list, access.DefaultSession)
	}
	return list, ok
}

// FlowPath is where orders about flows go.
const FlowPath = "/flows"

func segments(first, path, escaped string, most int) ([]string, bool) {
	rest, ok := strings.CutPrefix(path, first)
	if !ok || escaped != "" {
		return nil, false
	}
	if rest == "" {
		return nil, true
	}
	if rest[0] != '/' {
		return nil, false
	}
	list := strings.Split(rest[1:], "/")
	if len(list) > most {
		return nil, false
	}
	for _, s := range list {
		if !access.ValidHandle(s) {
			return nil, false
		}
	}
	return list, true
}

// act makes the caller the client that the path names, if it is an operator, who may speak in the name of any. One word
// names none: the operator, whom nobody asks again, has to say so.
func (c *Caller) act(t *Table, path []string) {
	switch {
	case !c.Local || len(path) < 2:
	case t.acts(c.Bound.UID):
		if m := t.members[path[0]]; m != nil {
			c.Member, c.Named, c.Bound.Acting = m, true, m.Name != access.Default
		}
	case c.Member != nil && !t.operates(c.Bound.UID) && (path[0] == access.Default || path[0] == access.Operator):
		path[0] = c.Member.Name // pfar's own programs name these, and a declared client means itself
	}
	if c.Member != nil {
		c.Bound.Client = c.Member.Name
	}
}

// Route finds what the path names for the caller. It reports false if the caller is no client.
func (v *Visitor) Route(
	reg *registry.Registry, path []string, header http.Header,
) (c Caller, known bool, wrong *jsonrpc.Error) {
	c = v.caller
	if c.act(v.table, path); c.Member == nil {
		return c, false, nil
	}
	c.Bound.Handle = access.DefaultSession
	if len(path) < 2 && c.begins() && c.Member.Tasks.Header != "" {
		if wrong := c.named(v.clients, header.Values(c.Member.Tasks.Header)); wrong != nil {
			return c, true, wrong
		}
	}
	return c, true, c.route(v.clients, reg, path)
}

// begins reports whether the caller may begin sessions: the client's own program, by the word of its declaration. An
// operator who speaks in its name has pfar sessions new.
func (c *Caller) begins() bool { return c.Member.Tasks.Client && !c.Bound.Acting }

// named finds the session of the conversation that a header names, which may begin with this request. Without the
// header the client is in its default session.
func (c *Caller) named(all *Clients, values []string) *jsonrpc.Error {
	switch len(values) {
	case 0:
		return nil
	case 1:
		return c.task(all, values[0])
	}
	return jsonrpc.Errorf(CodeNoSession, "header %s comes twice", c.Member.Tasks.Header)
}

func (c *Caller) task(all *Clients, name string) *jsonrpc.Error {
	handle := access.TaskHandle(name)
	if handle == "" || all.tasks == nil {
		const form = "this names no conversation: a name has 1 to 256 printable characters of ASCII, and no blank"
		return jsonrpc.Errorf(CodeNoSession, form)
	}
	if err := all.tasks.Begin(c.Bound.Client, handle); err != nil {
		return jsonrpc.Errorf(CodeNoSession, "the session of the conversation does not begin: %v", err)
	}
	c.Bound.Handle = handle
	return nil
}

// route finds the server that a path names. Of one word, the client's own name goes before a server's.
func (c *Caller) route(all *Clients, reg *registry.Registry, path []string) *jsonrpc.Error {
	if len(path) == 0 || len(path) == 1 && path[0] == c.Member.Name {
		return nil
	}
	if len(path) == 1 {
		c.Endpoint = path[0]
		if !c.Catalogue(reg).Known(c.Endpoint) {
			return nowhere()
		}
		return nil
	}
	if path[0] != c.Member.Name {
		return nowhere()
	}
	c.Bound.Handle = path[1]
	switch known := all.knows(c.Bound.Client, c.Bound.Handle); {
	case known:
	case c.begins() && c.Member.Tasks.Header == "":
		if wrong := c.task(all, path[1]); wrong != nil {
			return wrong
		}
	default:
		return jsonrpc.Errorf(CodeNoSession, "there is no session of this handle: the operator makes one with: pfar "+
			"sessions new %s", c.Bound.Client)
	}
	if len(path) == maxSegments {
		c.Endpoint = path[2]
		if !c.Catalogue(reg).Known(c.Endpoint) {
			return jsonrpc.Errorf(CodeNoServer, "there is no server of this name")
		}
	}
	return nil
}

// nowhere does not tell whether there is such a server or client for somebody else.
func nowhere() *jsonrpc.Error {
	return jsonrpc.Errorf(CodeNoServer, "there is no server of this name, nor are you a client of this name")
}
