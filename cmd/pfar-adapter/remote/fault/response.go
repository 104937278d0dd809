package fault

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/jsonrpc"
)

// maxRetry bounds what a server may say of when it wants to be asked again.
const maxRetry = 24 * time.Hour

// ReasonHeader is the header in which an egress bridge names the reason of an answer of its own.
const ReasonHeader = "X-Pfar-Reason"

// OfResponse returns the fault that a response is whose status is no success. Of its body, excerpt is the beginning.
// login is the server's name, by which its owner signs in; "": nobody can.
func OfResponse(status int, header http.Header, excerpt []byte, login string, now time.Time) *Fault {
	f := &Fault{Status: status, Class: failure.OfStatus(status)}
	if status == http.StatusTooManyRequests || spent(header) { // else a reset says nothing of this request
		f.Retry = retryAfter(header, now)
	}
	f.Detail = "HTTP " + strconv.Itoa(status)
	if name := http.StatusText(status); name != "" {
		f.Detail += " " + name
	}
	if reason := header.Get(ReasonHeader); reason != "" {
		f.Class = classOfRefusal(reason)
		first, _, _ := strings.Cut(string(excerpt), "\n")
		f.Status, f.Detail = 0, cmp.Or(strings.TrimSpace(first), "pfar refuses the request: "+reason)
		return f
	}
	says := ": "
	switch {
	case f.Retry > 0 && (status == http.StatusServiceUnavailable || status == http.StatusForbidden && spent(header)):
		f.Class = RateLimited // GitHub says 403 of too many requests
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		f.Auth = oauth.ReadDemand(header.Values("WWW-Authenticate"))
		if remedy := asks(f.Auth, login); remedy != "" {
			f.Detail += remedy
			says = "; the server says: " // a colon may be a part of a scope
		}
	}
	if text := said(header, excerpt); text != "" {
		f.Detail += says + text
	}
	return f
}

// classOfRefusal is the class of an answer of the egress bridge's.
func classOfRefusal(reason string) Class {
	switch {
	case reason == "certificate", reason == "upstream-tls", reason == "tls-pin":
		return TLS
	case strings.HasSuffix(reason, "-timeout"):
		return Timeout
	}
	return NetworkError
}

// said is what an error's body says: the message of a JSON-RPC error, what APIs write in its place, or a short text.
func said(header http.Header, excerpt []byte) string {
	if m, err := jsonrpc.Parse(excerpt); err == nil && isObject(m.Error) {
		return Said(m.Error)
	}
	if ms, err := jsonrpc.Object(excerpt, nil); err == nil {
		return sentence(ms)
	}
	if strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
		first, _, _ := strings.Cut(strings.TrimSpace(string(excerpt)), "\n")
		return first
	}
	return ""
}

// sentence is the member of an API's error that a person may read (RFC 6749 section 5.2, RFC 9457 section 3.1, and what
// else is common), "" if there is none.
func sentence(ms jsonrpc.Members) string {
	for _, name := range [...]string{"error_description", "message", "detail", "error", "title"} {
		value := ms.Get(name)
		if name == "error" && isObject(value) {
			return Said(value)
		}
		if text, err := jsonrpc.String(value); err == nil && text != "" {
			return text
		}
	}
	return ""
}

// Said is the message of a JSON-RPC error object.
func Said(raw []byte) string {
	ms, err := jsonrpc.Object(raw, nil)
	if err != nil {
		return ""
	}
	text, _ := jsonrpc.String(ms.Get("message"))
	return text
}

// spent reports whether a server says that there are no requests left.
func spent(header http.Header) bool {
	return header.Get("Retry-After") != "" || header.Get("X-RateLimit-Remaining") == "0" ||
		header.Get("RateLimit-Remaining") == "0"
}

// retryAfter returns when a server may be asked again: Retry-After in seconds or as a date (RFC 9110 section 10.2.3),
// or what APIs have beside it. A reset counts from now if it is small, and from 1970 if it is large.
func retryAfter(header http.Header, now time.Time) time.Duration {
	if v := header.Get("Retry-After"); v != "" {
		if at, err := http.ParseTime(v); err == nil {
			return bounded(at.Sub(now))
		}
		if n, ok := decimal(v); ok {
			return bounded(n)
		}
	}
	for _, name := range [...]string{"RateLimit-Reset", "X-RateLimit-Reset", "X-Rate-Limit-Reset"} {
		n, ok := decimal(header.Get(name))
		if !ok {
			continue
		}
		const moments = 1e8 * time.Second // some years
		if n >= moments {
			n -= time.Duration(now.UnixNano())
		}
		return bounded(n)
	}
	return 0
}

func bounded(d time.Duration) time.Duration { return max(0, min(d, maxRetry)) }

// decimal reads a number of seconds, "s" behind it or not. One too large to matter is as good as the largest.
func decimal(s string) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(s), "s"), 64)
	if err != nil || n < 0 || n != n {
		return 0, false
	}
	const most = 9e9 // seconds; more does not fit
	return time.Duration(min(n, most) * float64(time.Second)), true
}

// asks returns the command by which the owner of a server asks for the scopes that the token lacks. It returns "" if
// the token lacks none, if nobody can sign in to the server, or if a scope's name cannot stand in a command line.
func asks(d oauth.Demand, server string) string {
	if d.Code != oauth.InsufficientScope || units.ScopeOptions(d.Scopes) == "" || server == "" {
		return ""
	}
	return ", for want of a scope: its owner asks for it with " +
		units.ToDo(units.SignIn, server, d.Scopes...).Command
}
