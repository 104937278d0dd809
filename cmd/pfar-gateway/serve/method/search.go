package method

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/units/jsonrpc"
)

// A client that searches is listed three tools of pfar's own in place of those of all servers. No tool of a server has
// such a name on this endpoint: registry.Separator is not in them.
const (
	searchTools  = "search_tools"
	describeTool = "describe_tool"
	callAny      = "call_tool"
)

const (
	foundAtOnce = 10 // tools that a search returns, if the client gives no limit
	foundMost   = 50
	foundText   = 300  // bytes of a description in a search
	maxQuery    = 1024 // bytes
)

// searching reports whether the client finds tools by searching, in place of listing them. An endpoint of one server
// lists that server's tools all the same.
func searching(v *call.Visit) bool {
	return v.Endpoint == "" && v.Member != nil && v.Member.Rights.Search() && !v.Identity().Person
}

//go:embed search.json
var definitions []byte

// own are their definitions, as a list in one line: an event stream has no other texts.
var own, _ = jsonrpc.Compact(nil, definitions)

// Unfold puts the call that call_tool carries in the place of the request: from there on it is a call like any other.
func Unfold(v *call.Visit) error {
	if v.Method != string(mcp.MethodToolsCall) || !searching(v) {
		return nil
	}
	if name, _ := jsonrpc.String(v.Parameters.Get("name")); name != callAny {
		return nil
	}
	given, err := arguments(v, "name", "arguments")
	if err != nil {
		return err
	}
	name, err := jsonrpc.String(given.Get("name"))
	if err != nil {
		return invalidParams("the argument \"name\" of call_tool is %v", err)
	}
	inner := given.Get("arguments")
	if inner == nil {
		inner = []byte("{}")
	}
	folded := *v.Request
	edits := []jsonrpc.Edit{
		v.Parameters.Replace(v.Parameters.Index("name"), jsonrpc.Quote(name)),
		v.Parameters.Replace(v.Parameters.Index("arguments"), inner),
	}
	if edits[0].Start > edits[1].Start { // members come in any order
		slices.Reverse(edits)
	}
	folded.Params = jsonrpc.Splice(nil, v.Params, edits...)
	if folded.Parameters, err = jsonrpc.Object(folded.Params, nil); err != nil {
		return invalidParams("reading params: %v", err)
	}
	folded.Folded = true
	v.Request = &folded
	return nil
}

// arguments returns those of one of pfar's own tools, which takes no others.
func arguments(v *call.Visit, names ...string) (jsonrpc.Members, error) {
	given, err := jsonrpc.Object(jsonrpc.OrEmpty(v.Parameters.Get("arguments")), nil)
	if err == nil {
		err = given.LookAlike(names...)
	}
	if err != nil {
		return nil, invalidParams("reading the arguments: %v", err)
	}
	for i := range given {
		if !slices.Contains(names, string(given[i].Name)) {
			return nil, invalidParams("there is no argument %.100q; there are %q", given[i].Name, names)
		}
	}
	return given, nil
}

// hit is a tool as a search returns it.
type hit struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Arguments   []string `json:"arguments,omitempty"`
}

// search answers search_tools.
func search(calls *call.Calls, v *call.Visit) (reply.Reply, error) {
	given, err := arguments(v, "query", "limit")
	if err != nil {
		return reply.Reply{}, err
	}
	query, err := jsonrpc.String(given.Get("query"))
	if err != nil || len(query) > maxQuery {
		return reply.Reply{}, invalidParams(`the argument "query" of search_tools is not text of at most %d bytes`, maxQuery)
	}
	limit := foundAtOnce
	raw := given.Get("limit")
	if raw != nil && (json.Unmarshal(raw, &limit) != nil || limit < 1 || limit > foundMost) {
		return reply.Reply{}, invalidParams(`the argument "limit" of search_tools is not a number from 1 to %d`, foundMost)
	}
	c := v.Catalogue(calls.Registry)
	view, err := c.View("")
	if err != nil {
		return reply.Reply{}, err
	}
	found, err := view.Lists[registry.Tools].Search(query)
	if err != nil {
		return reply.Reply{}, err
	}
	result := struct {
		Tools []hit `json:"tools"`
		More  int   `json:"more,omitempty"` // that match as well
	}{Tools: []hit{}}
	for i, f := range found {
		if len(result.Tools) == limit {
			result.More = len(found) - i
			break
		}
		shown, err := mayShow(calls, v, c, f)
		if err != nil {
			return reply.Reply{}, err
		}
		if shown {
			result.Tools = append(result.Tools, hit{f.Name, reply.Cut(f.Description(), foundText), f.Arguments()})
		}
	}
	b, err := json.Marshal(result)
	if err != nil {
		return reply.Reply{}, err
	}
	return said(b), nil
}

// mayShow passes the gate with the definition of a tool, as with a list that it is in.
func mayShow(calls *call.Calls, v *call.Visit, c *registry.Catalogue, f registry.Found) (bool, error) {
	err := show(calls, v, lister(c, f.Server), false, f.Strange())
	switch {
	case errors.Is(err, enforce.ErrNotListed):
		return false, nil
	case err != nil:
		return false, jsonrpc.Errorf(approval.Code, "what %q lists may not be shown: %v", f.Server, err)
	}
	return true, nil
}

// describe answers describe_tool.
func describe(calls *call.Calls, v *call.Visit) (reply.Reply, error) {
	given, err := arguments(v, "name")
	if err != nil {
		return reply.Reply{}, err
	}
	name, err := jsonrpc.String(given.Get("name"))
	if err != nil {
		return reply.Reply{}, invalidParams("the argument \"name\" of describe_tool is %v", err)
	}
	c := v.Catalogue(calls.Registry)
	view, err := c.View("")
	if err != nil {
		return reply.Reply{}, err
	}
	f, ok := view.Lists[registry.Tools].Named(name)
	if ok {
		if ok, err = mayShow(calls, v, c, f); err != nil {
			return reply.Reply{}, err
		}
	}
	if !ok {
		return reply.Reply{}, invalidParams("there is no tool %.100q: find one with search_tools", name)
	}
	return said(f.Definition()), nil
}

// said is the result of one of pfar's own tools: a JSON text.
func said(text []byte) reply.Reply {
	const result = `{"content":[{"type":"text","text":%s}],"structuredContent":%s}`
	return reply.Reply{Result: fmt.Appendf(nil, result, jsonrpc.Quote(string(text)), text)}
}
