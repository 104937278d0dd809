package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// MinLength is the length from which on a value is searched for, in bytes: a shorter one would be found in any text.
const MinLength = 8

const (
	minLine   = 16 // of a part that is a line
	minWord   = 20 // of a part that is a member of a JSON document
	minNumber = 10 // digits, of one
	minWide   = 16 // letters from which on a value is searched for that has nothing else
)

// Unsearched says in words why a value is not searched for; "" if it is. What is as likely to stand in any text as to
// be a secret is not: it would be replaced wherever a server speaks of something else.
func Unsearched(value []byte) string {
	v := string(bytes.TrimSpace(value))
	switch {
	case len(v) < MinLength:
		return fmt.Sprintf("it has fewer than %d bytes", MinLength)
	case few(v):
		return "it has fewer than four different characters"
	case len(v) < minNumber && strings.Trim(v, "0123456789") == "":
		return fmt.Sprintf("it is a number of fewer than %d digits", minNumber)
	case len(v) < minWide && (strings.Trim(v[1:], lower) == "" && strings.Trim(v[:1], lower+upper) == "" || strings.Trim(v, upper) == ""):
		return fmt.Sprintf("it is a word of fewer than %d letters", minWide)
	case len(v) < minNumber+2 && strings.Trim(v, "0123456789-") == "" && strings.Count(v, "-") > 0:
		return "it looks like a date, as versions of MCP do"
	case slices.ContainsFunc(protocol, func(word string) bool { return strings.Contains(word, v) }):
		return "it is a word of MCP, or a part of one"
	case strings.HasPrefix(v, "/") && strings.Trim(v, lower+"0123456789/._-") == "":
		return "it is the path of a file"
	}
	u, err := url.Parse(v)
	if err == nil && u.Host != "" && u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == "" {
		return "it is a URL that names a host and nothing more"
	}
	return ""
}

// protocol has what MCP says in strings, of 8 bytes and more: without it no server could be spoken to. What it calls
// members is not replaced anyway (ReplaceJSON).
var protocol = []string{
	"completion/complete", "elicitation/create", "initialize", "logging/setLevel", "prompts/get", "prompts/list", "resources/list",
	"resources/read", "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "roots/list", "sampling/createMessage",
	"server/discover", "subscriptions/listen", "tasks/cancel", "tasks/get", "tasks/list", "tasks/result", "tools/call", "tools/list",
	"notifications/cancelled", "notifications/elicitation/complete", "notifications/initialized", "notifications/message",
	"notifications/progress", "notifications/prompts/list_changed", "notifications/resources/list_changed",
	"notifications/resources/updated", "notifications/roots/list_changed", "notifications/subscriptions/acknowledged",
	"notifications/tasks/status", "notifications/tools/list_changed",
	"assistant", "resource_link", "tool_result", "ref/prompt", "ref/resource", "input_required", "cancelled", "completed",
	"critical", "emergency", "date-time", "application/json", "application/octet-stream", "text/plain", "text/html",
	"text/markdown", "image/png", "image/jpeg",
	"https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#",
}

const (
	lower = "abcdefghijklmnopqrstuvwxyz"
	upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// few reports whether a text has less than four different bytes.
func few(v string) bool {
	var seen [256]bool
	n := 0
	for i := range len(v) {
		if !seen[v[i]] {
			seen[v[i]] = true
			n++
		}
	}
	return n < 4
}

// pieces returns what is searched for on behalf of a value: itself without the white space around it, and what programs
// take out of it and show alone: the lines of a key file, the password of a connection string, the tokens of a
// document.
func pieces(value []byte) []string {
	whole := string(bytes.TrimSpace(value))
	list := []string{whole}
	if strings.Contains(whole, "\n") {
		for line := range strings.Lines(whole) {
			line = strings.TrimSpace(line)
			if len(line) >= minLine && !strings.HasPrefix(line, "-----") { // which every key file has
				list = append(list, line)
			}
		}
	}
	if u, err := url.Parse(whole); err == nil && u.Host != "" && u.User != nil {
		password, _ := u.User.Password()
		list = append(list, password)
	}
	var document any
	if json.Unmarshal([]byte(whole), &document) == nil {
		list = tokens(list, document)
	}
	var searched []string
	for _, p := range list {
		if Unsearched([]byte(p)) == "" {
			searched = append(searched, p)
		}
	}
	return searched
}

// tokens adds the strings of a document that look like ones.
func tokens(list []string, document any) []string {
	switch d := document.(type) {
	case string:
		if strings.Contains(d, "\n") {
			return append(list, pieces([]byte(d))...)
		}
		const digits = "0123456789"
		if len(d) >= minWord && strings.Trim(d, lower+upper+digits+"+/=_-.~") == "" && strings.ContainsAny(d, digits) &&
			strings.ContainsAny(d, lower+upper) {
			return append(list, d)
		}
	case []any:
		for _, e := range d {
			list = tokens(list, e)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(d)) {
			list = tokens(list, d[name])
		}
	}
	return list
}
