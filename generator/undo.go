package generator

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// lasting are the places that the server writes to and that outlive it.
func lasting(c facts, binds []bind) []plan.Folder {
	var list []plan.Folder
	for _, b := range binds {
		if b.writable {
			list = append(list, plan.Folder{Path: b.real})
		}
	}
	if c.server.Sandbox.State {
		list = append(list, plan.Folder{Path: path.Join(c.host.real(c.host.StateDir), c.server.Name)})
	}
	return list
}

// keeps reports whether the launcher keeps what is in such places. Of several processes of one server, no launcher
// could tell which one wrote what.
func keeps(c facts) bool { return c.server.Sandbox.Undo.On && !c.server.Sessions.Own }

// undo is the launcher's part of that, nil for none.
func undo(c facts, binds []bind) *plan.Undo {
	folders := lasting(c, binds)
	if len(folders) == 0 || !keeps(c) {
		return nil
	}
	dir := path.Join(path.Dir(c.host.real(c.host.StateDir)), "undo", c.server.Name)
	u := c.server.Sandbox.Undo
	return &plan.Undo{Dir: dir, Folders: folders, Size: u.Size, Time: u.Time}
}

// explainUndo says whether what the server writes can be taken back.
func explainUndo(b *strings.Builder, p plan.Plan) {
	switch outlives := func(m sandbox.Mount) bool { return m.Kind == sandbox.Bind }; {
	case p.Undo != nil:
		fmt.Fprintf(b, "What a call overwrites in its directories can be taken back for %s (pfar undo %s), up to %s.\n",
			declaration.Short(p.Undo.Time), p.Name, size(p.Undo.Size))
	case !slices.ContainsFunc(p.Sandbox.Mounts, outlives):
	case p.Gateway.Sessions.Own:
		fmt.Fprintf(b, "What it overwrites cannot be taken back: several processes write it (sessions = \"own\").\n"+shipped)
	default:
		fmt.Fprintf(b, "What it overwrites cannot be taken back: undo = false.\n"+shipped)
	}
}

// shipped is what that costs.
const shipped = "So shipped facts make none of its tools reversible.\n"
