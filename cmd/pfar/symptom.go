package main

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/units/control"
)

// symptom is an error that programs report, and whose cause is their sandbox. Its words are a stranger's: what is taken
// out of them is checked, and shown escaped.
type symptom struct {
	says   *regexp.Regexp
	remedy func(file string, found []string) string
}

// symptoms takes 400 kB of expressions, so only a verb that shows an error makes them.
var symptoms = sync.OnceValue(func() []symptom {
	return []symptom{
		{regexp.MustCompile(`(?i)(?:127\.0\.0\.1|localhost|::1)[^\n]{0,30} port ([0-9]{1,5})\b[^\n]{0,60}connection refused`), ownLoopback},
		{regexp.MustCompile(`(?i)(?:ECONNREFUSED|connection refused)\W{1,3}(?:127\.0\.0\.1|localhost|\[?::1\]?)\W{1,3}(?:port )?([0-9]{1,5})\b`), ownLoopback},
		{regexp.MustCompile(`(?i)(?:127\.0\.0\.1|localhost|\[?::1\]?)\W{1,5}(?:port )?([0-9]{1,5})\b[^\n]{0,60}(?:ECONNREFUSED|connection refused)`), ownLoopback},
		{regexp.MustCompile(`(?:EROFS|[Rr]ead-only file system)(?:[^\n'"]{0,60}['"](/[^\n'"]{1,200})['"])?`), readOnly},
		{regexp.MustCompile(`(?i)no such file or directory[^\n'"]{0,20}['"]?(/etc/[A-Za-z0-9._/-]{1,200})`), missing},
		{regexp.MustCompile(`(?i)(/etc/[A-Za-z0-9._/-]{1,200})['":]{0,2} (?:is missing|[^\n]{0,20}no such file or directory)`), missing},
	}
})

func ownLoopback(file string, found []string) string {
	return fmt.Sprintf("127.0.0.1 is the sandbox's own; for a service of this machine add \"127.0.0.1:%s\" to "+
		"allowed_domains in %s", found[1], file)
}

func readOnly(file string, found []string) string {
	remedy := fmt.Sprintf("the server may write to its home (state = true in the block sandbox of %s) and to what writable names there", file)
	switch path := found[1]; {
	case strings.HasSuffix(path, "/memory.json"), strings.HasSuffix(path, "/memory.jsonl"): // of @modelcontextprotocol/server-memory
		remedy += `; have it keep its file there: env = { MEMORY_FILE_PATH = "/home/mcp/memory.jsonl" }`
	case path != "":
		remedy += "; have it keep " + path + " there, by an option of its own"
	}
	return remedy
}

func missing(file string, found []string) string {
	return fmt.Sprintf("if this machine has %s, add it to read_only in the block sandbox of %s", found[1], file)
}

// symptomRemedy says what to do about an error that a server reports, "" for one that says nothing of its sandbox.
func symptomRemedy(file, text string) string {
	const most = 64 << 10
	text = text[:min(len(text), most)]
	for _, s := range symptoms() {
		if found := s.says.FindStringSubmatch(text); found != nil {
			return s.remedy(file, found)
		}
	}
	return ""
}

// refusalRemedy says how to allow what the egress bridge has refused, "" if nothing would.
func refusalRemedy(s control.Server) string {
	return s.Refused.Remedy(s.File)
}

// sandboxRemedy says what to do about a call that failed with these words, by what the server was refused since it
// began or, if that is nothing, by the words.
func sandboxRemedy(s control.Server, text string, since time.Time) string {
	if remedy := refusalRemedy(s); remedy != "" && !s.LastRefused.Before(since) {
		return s.Name + " was " + s.LastRefusal + " meanwhile; " + remedy
	}
	return symptomRemedy(s.File, text)
}
