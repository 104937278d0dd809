package access

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Tasks says who begins sessions for a client. The zero value: the operator alone.
type Tasks struct {
	Client bool   `json:"client,omitempty"` // its program does, one for each of its conversations
	Header string `json:"header,omitempty"` // that names the conversation; "": the path does
}

const (
	maxTaskHeader = 64
	maxTask       = 256 // bytes of what names a conversation
)

// passing are headers that proxies and libraries set, another one for each request: every request would begin a task.
var passing = []string{
	"x-request-", "x-correlation-", "x-trace-", "x-b3-", "x-amz", "x-cloud-trace-", "x-datadog-", "x-forwarded-",
	"x-real-ip",
}

// TaskHeaderFault says why no task may be named by a header, "" if one may. Only those that begin with X- are free for
// programs. Above all a header Mcp-Param-... is none of the program's: there a server has the model's own arguments
// repeated (SEP-2243), so that the model, and whoever it heeds, would begin tasks.
func TaskHeaderFault(name string) string {
	lower := strings.ToLower(name)
	switch {
	case strings.Trim(lower, handleLetters) != "" || strings.Contains(lower, "_"):
		return "has other characters than letters, digits and -"
	case len(name) > maxTaskHeader:
		return "is longer than 64 characters"
	case strings.HasPrefix(lower, "mcp-"):
		return "is one of MCP's own, in which servers and models can put words"
	case len(lower) < len("x-a") || !strings.HasPrefix(lower, "x-"):
		return "does not begin with X-"
	case slices.ContainsFunc(passing, func(p string) bool { return strings.HasPrefix(lower, p) }):
		return "is another one for each request"
	}
	return ""
}

// TaskHandle is the handle of the session of a task, "" for what names none. It tells nothing of the name, and is never
// one that the operator mints.
func TaskHandle(name string) string {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if name == "" || len(name) > maxTask || strings.ContainsFunc(name, odd) {
		return ""
	}
	sum := sha256.Sum256([]byte(name))
	return "task-" + hex.EncodeToString(sum[:16])
}
