package redact

import (
	"regexp"
	"strings"
	"sync"
)

// Compiled when the first text comes: every start of a server starts processes that have this package, and read nothing.
var (
	userinfo = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)[^\s/?#"'<>]*@`) })
	header   = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)(\\?["']?\s*[:=]\s*\\?["']?)[^\s"'\\](?:[^\r\n"'\\]*)`)
	})
)

// Strip removes what an error often shows of a secret that nobody has told us of: a URL's user and password, and the
// values of the header fields Authorization and Cookie and their kin (attacks.md CR-13). It is for logs and errors: in a
// result it would be wrong.
func Strip(text string) string {
	if strings.Contains(text, "://") { // the expressions cost a thousand times as much
		text = userinfo().ReplaceAllString(text, "${1}[removed]@")
	}
	if folded := strings.ToLower(text); strings.Contains(folded, "cookie") || strings.Contains(folded, "authorization") {
		text = header().ReplaceAllString(text, "${1}${2}[removed]")
	}
	return text
}
