package generator

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/units/hostfs"
)

// findings collects what is wrong with a declaration on a host.
type findings struct {
	place func(key string) hcl.Range
	diags hcl.Diagnostics
}

// fail reports an error at a key of the declaration.
func (c *findings) fail(key, summary, format string, args ...any) {
	c.report(hcl.DiagError, key, summary, format, args...)
}

func (c *findings) warn(key, summary, format string, args ...any) {
	c.report(hcl.DiagWarning, key, summary, format, args...)
}

func (c *findings) report(severity hcl.DiagnosticSeverity, key, summary, format string, args ...any) {
	at := c.place(key)
	c.diags = c.diags.Append(&hcl.Diagnostic{Severity: severity, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: &at})
}

// lack reports an error that may be none once one of some paths is there, or is another file.
func (c *findings) lack(paths []string, key, summary, format string, args ...any) {
	c.fail(key, summary, format, args...)
	c.diags[len(c.diags)-1].Extra = absent(paths)
}

// absent is a diagnostic's Extra: the paths of the host at which the compiler found nothing that it can use.
type absent []string

// Absent returns the paths for the want of which a declaration cannot be used, sorted. It may be good once one of them
// is there.
func Absent(diags hcl.Diagnostics) (paths []string) {
	for _, d := range diags {
		if list, ok := d.Extra.(absent); ok {
			paths = append(paths, list...)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// paths are the file's, as it was written and where links lead.
func paths(f hostfs.File) []string { return []string{f.Written, f.Real} }
