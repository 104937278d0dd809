package registry

import "iter"

// Tools are those of every server that is up, as calls of them would go.
func (c *Catalogue) Tools() iter.Seq[Route] {
	return func(yield func(Route) bool) {
		for _, s := range c.serving {
			for _, item := range s.listing[Tools] {
				if !yield(Route{Upstream: s.upstream, Name: item.Name, Item: item, Label: s.label}) {
					return
				}
			}
		}
	}
}
