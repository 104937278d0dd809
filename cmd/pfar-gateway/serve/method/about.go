package method

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/units/jsonrpc"
)

// capabilities returns those of an endpoint: all that pfar passes on, or those of its one server.
func capabilities(v *registry.View) []byte {
	if v.Server == "" {
		return []byte(`{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`)
	}
	a := v.Agreed[0].Agreement
	b := []byte{'{'}
	for _, c := range [...][2]string{
		{"completions", `{}`}, {"logging", `{}`}, {"prompts", `{"listChanged":true}`},
		{"resources", fmt.Sprintf(`{"listChanged":true,"subscribe":%t}`, a.Subscribes())}, {"tools", `{"listChanged":true}`},
	} {
		if !a.Has(c[0]) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%q:%s", c[0], c[1])
	}
	return append(b, '}')
}

// About says what an endpoint is and offers.
type About struct {
	Calls   *call.Calls
	Version string // of pfar
}

// initialized is the result of initialize.
func (a *About) initialized(v *call.Visit, view *registry.View, version string) reply.Reply {
	about := a.reviewed(v, view)
	result := fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"serverInfo":%s`, version, capabilities(view), a.info(view, about))
	return reply.Reply{Result: append(appendInstructions(result, view, about, searching(v)), '}')}
}

// discover answers server/discover, which replaces initialize in 2026-07-28.
func (a *About) discover(v *call.Visit) (reply.Reply, error) {
	if v.Session != nil {
		return reply.Reply{}, jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: %q begins with protocol %s", v.Method,
			mcp.ProtocolVersion20260728)
	}
	view, err := v.Catalogue(a.Calls.Registry).View(v.Endpoint)
	if err != nil {
		return reply.Reply{}, err
	}
	versions, err := json.Marshal(mcp.ValidProtocolVersions)
	if err != nil {
		return reply.Reply{}, err
	}
	about := a.reviewed(v, view)
	result := fmt.Appendf(nil, `{"supportedVersions":%s,"capabilities":%s`, versions, capabilities(view))
	result = appendInstructions(result, view, about, searching(v))
	return reply.Reply{Result: fmt.Appendf(result, `,"_meta":{%q:%s}}`, mcp.MetaKeyServerInfo, a.info(view, about))}, nil
}

// reviewed is what each server behind a view says of itself, as far as a person or pfar's makers have accepted it, or
// no stranger can have written it. Nothing raises the session's label for it: it comes before all else that is asked.
func (a *About) reviewed(visit *call.Visit, v *registry.View) []registry.About {
	list := make([]registry.About, len(v.Agreed))
	for i, n := range v.Agreed {
		list[i] = n.About
		if (n.InfoReviewed || v.Server == "") && (n.InstructionsReviewed || n.About.Instructions == "") {
			continue
		}
		by := lister(a.Calls.Registry.Catalogue(), n.Server)
		clean := a.Calls.Gate != nil && a.Calls.Gate.Clean(visit.Ctx, visit.Identity(), by)
		list[i].InfoReviewed = clean || n.InfoReviewed
		if !clean && !n.InstructionsReviewed {
			list[i].Instructions = ""
		}
	}
	return list
}

// info is who the endpoint says it is: pfar, or its one server. Of that it says the declared name, unless what the
// server says has been reviewed.
func (a *About) info(v *registry.View, about []registry.About) []byte {
	switch {
	case v.Server == "":
		return fmt.Appendf(nil, `{"name":"pfar","version":%s}`, jsonrpc.Quote(a.Version))
	case about[0].InfoReviewed:
		return v.Agreed[0].Info
	}
	return fmt.Appendf(nil, `{"name":%s,"version":"unknown"}`, jsonrpc.Quote(v.Server))
}

const (
	oneInstructions = 2 << 10  // bytes of one server's among others
	allInstructions = 16 << 10 // bytes in all
)

const ownInstructions = `pfar serves the tools, prompts and resources of several MCP servers, each confined to what its owner declared. ` +
	`A tool or prompt is called SERVER__NAME. A server that stops takes its tools out of the lists; they come back with it.`

// appendInstructions appends the member of that name: the server's own, or pfar's with what the owner and each server
// say about it under that server's name, so that none speaks for pfar or for another.
func appendInstructions(b []byte, v *registry.View, about []registry.About, searching bool) []byte {
	var text string
	if v.Server != "" {
		text = reply.Cut(about[0].Instructions, allInstructions)
	} else {
		text = together(v.Agreed, about, searching)
	}
	if text == "" {
		return b
	}
	return append(append(b, `,"instructions":`...), jsonrpc.Quote(text)...)
}

func together(servers []registry.Named, about []registry.About, searching bool) string {
	var all strings.Builder
	all.WriteString(ownInstructions)
	if searching {
		all.WriteString(` Find tools with search_tools and describe_tool, and call them with call_tool.`)
	}
	says := func(head, server, text string) (room bool) {
		if text == "" {
			return true
		}
		if all.Len()+len(text) > allInstructions {
			all.WriteString("\n\n(What there is to say about further servers is left out.)")
			return false
		}
		fmt.Fprintf(&all, "\n\nServer %s%s:\n", server, head)
		for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
			all.WriteString("> " + line + "\n") // so that none of it looks like the next server's
		}
		return true
	}
	for _, s := range servers { // the owner first: what servers say does not take the room
		if !says(", as its owner describes it", s.Server, s.Description) {
			return all.String()
		}
	}
	for i, s := range servers {
		if !says(" says about itself", s.Server, reply.Cut(about[i].Instructions, oneInstructions)) {
			break
		}
	}
	return all.String()
}
