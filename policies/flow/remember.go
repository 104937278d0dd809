package flow

// Remember returns nodes that look each name up once: one flow names the same node often, and a search goes through all
// tools of a client. It is for one goroutine.
func Remember(nodes Nodes) Nodes {
	if m, ok := nodes.(*memory); ok {
		return m
	}
	return &memory{nodes, map[string]found{}}
}

type memory struct {
	nodes Nodes
	known map[string]found
}

type found struct {
	node *Node
	err  error
}

func (m *memory) Find(name string) (*Node, error) {
	f, ok := m.known[name]
	if !ok {
		f.node, f.err = m.nodes.Find(name)
		m.known[name] = f
	}
	return f.node, f.err
}
