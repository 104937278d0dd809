package verify

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/jsonrpc"
)

// maxText bounds what is looked at of an answer, in bytes, and maxWords what is shown of it, in characters.
const (
	maxText     = 256 << 10
	maxWords    = 300
	maxSearched = 8 << 10 // bytes that words are looked for in: that costs more than to read them
)

// content is the text of a tool's result. It is not whole if the server wants something else first.
func content(raw []byte) (isError bool, text string, whole bool) {
	ms, err := jsonrpc.Object(raw, nil)
	if kind := string(ms.Get("resultType")); err != nil || kind != "" && kind != `"complete"` {
		return false, "", false
	}
	failed := string(ms.Get("isError"))
	isError = failed != "" && failed != "false" // what is no truth value is no good answer either
	parts, err := jsonrpc.Array(ms.Get("content"), nil, maxText)
	if err != nil {
		return isError, "", true
	}
	var b strings.Builder
	for _, part := range parts {
		one, err := jsonrpc.Object(part, nil)
		if err != nil || string(one.Get("type")) != `"text"` {
			continue
		}
		said, _ := jsonrpc.String(one.Get("text"))
		b.WriteString(visible.Cut(said, maxText-b.Len()))
		if b.Len() >= maxText {
			break
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		b.WriteString(visible.Cut(string(ms.Get("structuredContent")), maxText))
	}
	return isError, strings.TrimSuffix(b.String(), "\n"), true
}

// message is what an error of the protocol says.
func message(raw []byte) string {
	var e struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(raw, &e) // ValidError has read it
	return visible.Cut(e.Message, maxText)
}

// unreached reports whether an answer says that the service was not reached, or did not get to the secrets. A service
// that speaks of them has been reached.
func unreached(text string) bool {
	text = visible.Cut(text, maxSearched)
	return network.MatchString(text) && !secret.MatchString(text)
}

var (
	network = regexp.MustCompile(`(?i)\bpfar (cannot reach|refuse[sd]|does not)|` +
		`\bE(NOTFOUND|AI_AGAIN|CONN(REFUSED|RESET|ABORTED)|` +
		`TIMEDOUT|HOSTUNREACH|NETUNREACH|PIPE)\b|socket hang ?up|getaddrinfo|fetch failed|no such host|name resolution|` +
		`network (error|is unreachable)|connection (error|refused|reset|aborted|closed|timed out)|not in allowed_domains|` +
		`\btime(d[ -]?out|out)\b|\brequest to \S+ failed\b|` +
		`too many requests|rate[ _-]?limit|service unavailable|bad gateway|internal server error|` +
		`\b(status|code|http)\b[^0-9a-z]{1,12}(429|5[0-9][0-9])\b`)
	secret = regexp.MustCompile(`(?i)\b(401|403)\b|unauthori[sz]ed|unauthenticated|` +
		`not authenticated|authentication (failed|required)|` +
		`forbidden|permission denied|` +
		`(invalid|bad|wrong|expired|revoked|missing)[ _-]?(\w+[ _-]){0,2}` +
		`(token|key|credential|secret|password|auth)|` +
		`(token|key|credentials?|secret|password)\b[^.]{0,40}\b(invalid|expired|revoked|not valid|incorrect|rejected)`)
)

// clean makes a stranger's text one line that a person can be shown: short, and nothing in it that a terminal obeys or
// that cannot be seen.
func clean(text string) string {
	text = strings.Join(strings.Fields(visible.Cut(text, 16*maxWords)), " ")
	text = visible.Reveal(text)
	if utf8.RuneCountInString(text) > maxWords {
		text = string([]rune(text)[:maxWords-1]) + "…"
	}
	return text
}
