package generator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/plan"
)

// Unknown says that nothing is known of what the server's tools do, what that costs, and what to write in the
// declaration. It is empty if the declaration or the policy says anything of it, how secret the output is left aside.
func Unknown(p plan.Plan, policy *gate.Policy) string {
	d, ok := p.Declared()
	if policy == nil || !ok {
		return ""
	}
	says := func(w gate.Word) bool {
		w.Confidentiality = 0
		return !w.Silent()
	}
	service, certain := policy.Service(d)
	if certain || slices.ContainsFunc(d.Words, says) || slices.ContainsFunc(policy.Words,
		func(w gate.Word) bool { return w.Server == p.Name && says(w) }) {
		return ""
	}
	why := "Nothing is known of its tools"
	remedy := `Write service = "NAME" if it is of a known service, or say it yourself with trust { ... } ` +
		`and tool "NAME" { ... }`
	if d.Doubt != nil {
		why = fmt.Sprintf("Its program may be the package %s, but %s", d.Doubt.Package, d.Doubt.Why)
		service = cmp.Or(policy.ServiceOf(d.Doubt.Package), service)
	} else if service != "" {
		packages := strings.Join(policy.Services[service].Packages, " or ")
		why = fmt.Sprintf("It is named like the service %s, and its program is not certainly %s", service, packages)
	}
	if service != "" {
		remedy = fmt.Sprintf("Write service = %q if it is", service)
	}
	return why + ", so each tool counts as returning text of strangers, reaching the public and doing what cannot be " +
		"undone: its calls wait for approval. " + remedy + "."
}
