package serve

import (
	"net/http"
	"strings"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/policies/access"
)

// Errors of a path that leads nowhere (GAT-12). What a client may not use is answered as what there is not.
const (
	CodeNoServer  = -32013 // no server, or no client, of that name
	CodeNoSession = -32014 // the operator has minted no session of that handle for this client
)

// maxSegments is of a path behind /mcp: client, session, server.
const maxSegments = 3

// segments takes apart the path of an endpoint: /mcp, /mcp/SERVER, /mcp/CLIENT, /mcp/CLIENT/SESSION or
// /mcp/CLIENT/SESSION/SERVER. It reports false if it is none: names are plain, so one that is written in another way,
// with escapes or dots, is none.
func segments(path, escaped string) ([]string, bool) {
	rest, ok := strings.CutPrefix(path, "/mcp")
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
	if len(list) > maxSegments {
		return nil, false
	}
	for _, s := range list {
		if !access.ValidHandle(s) {
			return nil, false
		}
	}
	return list, true
}

// act makes an exchange the client's that the path names, if it is with an operator, who may speak in the name of any
// (GC-50). One word names none: who is the operator, whom nobody asks again, has to say so.
func (x *exchange) act(t *table, path []string) {
	switch {
	case !x.local || len(path) < 2:
	case t.acts(x.bound.UID):
		if m := t.members[path[0]]; m != nil {
			x.member, x.bound.Acting = m, m.Name != access.Default
		}
	case x.member != nil && !t.operates(x.bound.UID) && (path[0] == access.Default || path[0] == access.Operator):
		path[0] = x.member.Name // who is a declared client already needs not be the one that pfar's own programs are
	}
	if x.member != nil {
		x.bound.Client = x.member.Name
	}
}

// route finds what the path names for this client. Of one word, the client's own name goes before a server's.
func (x *exchange) route(path []string) *jsonrpc.Error {
	x.bound.Handle = access.DefaultSession
	if len(path) == 0 || len(path) == 1 && path[0] == x.member.Name {
		return nil
	}
	if len(path) == 1 {
		x.endpoint = path[0]
		if !x.catalogue().Known(x.endpoint) {
			return nowhere()
		}
		return nil
	}
	if path[0] != x.member.Name {
		return nowhere()
	}
	if x.bound.Handle = path[1]; !x.srv.knows(x.bound.Client, x.bound.Handle) {
		return jsonrpc.Errorf(CodeNoSession, "there is no session of this handle: the operator makes one with: pfar sessions new %s", x.bound.Client)
	}
	if len(path) == maxSegments {
		x.endpoint = path[2]
		if !x.catalogue().Known(x.endpoint) {
			return jsonrpc.Errorf(CodeNoServer, "there is no server of this name")
		}
	}
	return nil
}

// nowhere says nothing of whether there is such a server or client for somebody else.
func nowhere() *jsonrpc.Error {
	return jsonrpc.Errorf(CodeNoServer, "there is no server of this name, nor are you a client of this name")
}

// misplaced answers a request whose path leads nowhere: in the protocol's own words, if it is a message at all
// (GAT-13).
func (x *exchange) misplaced(e *jsonrpc.Error) {
	if x.r.Method == http.MethodPost {
		if !x.acceptable() {
			return
		}
		body, ok := x.body()
		if !ok {
			return
		}
		_, _ = x.parse(body) // for its id, if it has one
	}
	writeError(x.w, http.StatusNotFound, x.echo(), e)
}
