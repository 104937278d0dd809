package stderr

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

const (
	maxWords = 64  // lines of a server's that are kept for the cause of its end
	maxWord  = 512 // bytes of one
)

var (
	// said begins lines of npm(1), which says so on each of them.
	said = atFirstUse(`^npm (?:ERR!|error|warn|WARN) ?`)
	// noise says nothing of the cause: a runtime's version, where a log lies, frames of a stack, advice.
	noise = atFirstUse(`^(?:Node\.js v\d|Bun v\d|A complete log of this run|Log files were not written|Deno \d|` +
		`\s*at \S|\s*File "|Traceback |goroutine \d+ \[|note: run with|exit status \d+$|npm notice|` +
		`(?:code|errno|syscall|path) \S+$|(?:\w+ )?In most cases,? you|(?:\w+ )?a package version that|` +
		`For more information|If you are behind a proxy)`)
	// telling is in lines that name a cause.
	telling = atFirstUse(`(?i)error\b|exception\b|^panic|panicked|^fatal|^caused by|cannot|can't|could not|couldn't|` +
		`unable to|failed|failure|refused|denied|not found|no such|not in this registry|not allowed|not permitted|` +
		`unauthori[sz]ed|forbidden|` +
		`invalid|missing|required|must (?:be|not|have)|timed? ?out|unknown|unexpected|unsupported|out of memory|in use`)
)

// atFirstUse compiles an expression when a server has ended: each start runs this program several times.
func atFirstUse(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

func spoken(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// causeOf returns the line that says why a server has ended, of the last lines that it wrote: the last one that names a
// cause, or else the last one that says anything. A stack and details are indented behind the line that they belong to.
func causeOf(lines []string) string {
	rest := ""
	for _, line := range slices.Backward(lines) {
		text := said().ReplaceAllString(line, "")
		if noise().MatchString(text) || !strings.ContainsFunc(text, spoken) {
			continue
		}
		if text[0] != ' ' && text[0] != '\t' && telling().MatchString(text) {
			return strings.TrimSpace(line)
		}
		if rest == "" {
			rest = strings.TrimSpace(line)
		}
	}
	if rest == "" && len(lines) > 0 {
		return strings.TrimSpace(lines[len(lines)-1])
	}
	return rest
}
