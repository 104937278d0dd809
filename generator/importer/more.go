package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/pfar/pfar/generator/declaration"
)

// more adds to a declaration what the catalogue's writer does not know: how it runs, and which tools clients have.
func (d *draft) more(text string) string {
	var top, tools strings.Builder
	if d.Disabled {
		top.WriteString("enabled = false\n")
	}
	if d.waits {
		top.WriteString("autostart = false\n")
	}
	if d.timeout > 0 {
		fmt.Fprintf(&top, "timeout = \"%ds\"\n", int(d.timeout.Seconds()))
	}
	if d.version != "" && d.p.Package == "" {
		top.WriteString("version = " + declaration.Text(d.version) + "\n")
	}
	tool := func(name string, on bool) {
		fmt.Fprintf(&tools, "\ntool %s { enabled = %t }\n", declaration.Text(name), on)
	}
	if d.tools.listed {
		tool("*", false)
	}
	names := slices.Concat(d.tools.allow, d.tools.deny)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if denied := slices.Contains(d.tools.deny, name); denied || d.tools.listed {
			tool(name, !denied)
		}
	}
	keys, sections, _ := strings.Cut(text, "\n\n") // the comment, and the keys at the top
	return string(hclwrite.Format([]byte(keys + "\n" + top.String() + "\n" + sections + tools.String())))
}
