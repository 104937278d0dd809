package generator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/plan"
)

// inspectorTasks bounds the processes and threads of one answer.
const inspectorTasks = 64

// UnknownChat finds a notice for a chat that is not declared. at is where the notice is declared; chats are the names
// that chat.d declares.
func UnknownChat(e inspector.External, at hcl.Range, chats []string) hcl.Diagnostics {
	if e.Notice == nil || e.Notice.Chat == "" || slices.Contains(chats, e.Notice.Chat) {
		return nil
	}
	remedy := fmt.Sprintf("Write chat.d/%s.hcl, as pfar-chat(5) says.", e.Notice.Chat)
	if len(chats) > 0 {
		remedy = fmt.Sprintf("chat.d has %s.", strings.Join(chats, ", "))
	}
	const words = "The notice %q is for the chat %q, which is not declared. %s"
	return hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: "Unknown chat", Subject: &at,
		Detail: fmt.Sprintf(words, e.Name, e.Notice.Chat, remedy),
	}}
}

// Inspector says in what an inspector's program runs: what a server would be given that declares nothing but its
// command, and what of the host it may read. at is where it is declared. With an error among the diagnostics the plan
// is empty.
func Inspector(e inspector.External, at hcl.Range, h Host) (plan.Inspection, hcl.Diagnostics) {
	e, err := e.Declared()
	if err != nil {
		return plan.Inspection{}, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Inspector not possible",
			Detail: err.Error() + ".", Subject: &at}}
	}
	if len(e.Exec) == 0 {
		return plan.Inspection{Inspector: e}, nil
	}
	p, diags := Compile(declaration.Server{
		Name: e.Name, File: at.Filename, Label: declaration.Secret, Transport: declaration.Stdio, Enabled: true,
		Program: declaration.Program{Command: e.Exec[0], Args: e.Exec[1:]},
		Sandbox: declaration.Sandbox{Memory: e.Memory, Tasks: inspectorTasks, ReadOnlyFS: true, AllowTmp: true, ReadOnly: e.ReadOnly},
	}, h)
	for _, d := range diags { // of a server that nobody has declared
		d.Subject, d.Context = &at, nil
	}
	if diags.HasErrors() {
		return plan.Inspection{}, diags
	}
	return plan.Inspection{Sandbox: p.Sandbox, Inspector: e}, diags
}
