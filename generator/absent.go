package generator

import (
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/units/hostfs"
)

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
