package serve

import (
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/operator"
)

// Facts are what the gate goes by for each tool that is served, before any client's declaration makes it stricter.
func (s *Server) Facts() []operator.ToolFacts {
	list := []operator.ToolFacts{}
	if s.gate == nil {
		return list
	}
	for route := range s.registry.Catalogue().Tools() {
		f := s.gate.Facts(itemOf(target{Route: route, kind: gate.Tool}))
		list = append(list, operator.ToolFacts{Server: route.Upstream.Server().Name, Tool: route.Name, Facts: f})
	}
	return list
}
