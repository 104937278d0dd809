package registry

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/search"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Found is a tool of a list.
type Found struct {
	Server string
	Name   string // that clients call it by
	Item
	part part
}

// Definition is the tool as the list shows it.
func (f Found) Definition() []byte { return appendItem(nil, Tools, f.Item, f.part, f.Name) }

// Description returns what the definition says of itself.
func (f Found) Description() string {
	text, _ := jsonrpc.String(f.Member("description"))
	return text
}

// Arguments returns the names of the tool's arguments, sorted.
func (f Found) Arguments() []string {
	schema, _ := jsonrpc.Object(f.Member("inputSchema"), nil)
	properties, _ := jsonrpc.Object(schema.Get("properties"), nil)
	names := make(map[string]bool)
	for i := range properties {
		names[string(properties[i].Name)] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// finder finds the tools of one list.
type finder struct {
	once  sync.Once
	tools []Found
	index *search.Index
	err   error
}

func (l *List) finder() *finder {
	f := &l.find
	f.once.Do(func() {
		var texts []search.Tool
		for _, p := range l.parts {
			for _, i := range p.items {
				found := Found{Server: p.server, Name: i.served(), Item: i, part: p}
				if p.aggregate {
					found.Name = servedName(p.server, found.Name)
				}
				title, _ := jsonrpc.String(i.Member("title"))
				f.tools = append(f.tools, found)
				texts = append(texts, search.Tool{
					Name: p.server + " " + i.served(), Title: title, Description: found.Description(),
					Arguments: strings.Join(found.Arguments(), " "),
				})
			}
		}
		f.index, f.err = search.New(texts)
	})
	return f
}

// Search returns the tools that match a query, best first.
func (l *List) Search(query string) ([]Found, error) {
	f := l.finder()
	if f.err != nil {
		return nil, f.err
	}
	places, err := f.index.Find(query)
	list := make([]Found, 0, len(places))
	for _, at := range places {
		list = append(list, f.tools[at])
	}
	return list, err
}

// Named returns the tool of this name, false if the list has none.
func (l *List) Named(name string) (Found, bool) {
	tools := l.finder().tools
	i := slices.IndexFunc(tools, func(f Found) bool { return f.Name == name })
	if i < 0 {
		return Found{}, false
	}
	return tools[i], true
}
