package visible

import "strings"

// ShellSafe reports whether a server's word may stand on the operator's command line: a completion is inserted
// unquoted, so a tool named "x;reboot" must not be offered.
func ShellSafe(s string) bool {
	return s != "" && !strings.HasPrefix(s, "-") && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/:@+,", r))
	})
}
