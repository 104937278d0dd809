package units

import "runtime/debug"

// version is set by the linker (-X): the Makefile takes it from the tag or the commit, as packages do.
var version string

// Version is pfar's version. Programs that another build made have the module's, or "unknown".
func Version() string {
	if version != "" {
		return version
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "unknown"
}
