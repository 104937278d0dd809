package flow

import (
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/failure"
)

// TestActions: every class has an action of its own kind and words that name no other one, and none is Default: a call
// that has failed never goes on as one that has succeeded.
func TestActions(t *testing.T) {
	tests := []struct {
		class        failure.Class
		after        int64
		action, says string
	}{
		{failure.RateLimited, 0, "rate_limited", "github API rate limit exceeded. Please try again later."},
		{failure.RateLimited, 30, "rate_limited", "github API rate limit exceeded. Please try again in 30 s."},
		{failure.Unauthorized, 0, "auth_failed", "Authentication failed. Check your github token."},
		{failure.Forbidden, 0, "auth_failed", "Permission denied. Check your token scopes."},
		{failure.NotFound, 0, "resource_missing", "Resource not found. Check the names and the query."},
		{failure.Timeout, 0, "timeout", "Request timed out. Please try again."},
		{failure.ServerError, 0, "server_error", "github server error. Please try again later."},
		{failure.NetworkError, 0, "network_error", "Network error. Check your connection."},
		{failure.TLS, 0, "tls_failed",
			"TLS failed: the host of github did not prove its identity. Check its name and certificate."},
		{failure.Schema, 0, "schema_mismatch", "The answer of github does not conform to the tool's schema."},
		{failure.Died, 0, "server_died", "The process of github has ended. Start it: pfar start github"},
		{"", 0, "failed", "MCP error: no such table"},
		{"of a later version", 0, "failed", "MCP error: no such table"},
	}
	var classes []failure.Class
	for _, tt := range tests {
		classes = append(classes, tt.class)
		if got := Action(tt.class); got != tt.action || got == Default || !slices.Contains(Actions(), got) {
			t.Errorf("%q ends with %q, want %q", tt.class, got, tt.action)
		}
		f := failure.Failure{Class: tt.class, After: tt.after}
		if got := Words(f, "github", "no such table"); got != tt.says {
			t.Errorf("%q: %s", tt.class, got)
		}
	}
	for _, c := range failure.Classes() {
		if !slices.Contains(classes, c) {
			t.Errorf("%q is not in the table", c)
		}
	}
	const all = "default rate_limited auth_failed resource_missing timeout server_error network_error tls_failed " +
		"schema_mismatch server_died failed"
	if got := strings.Join(Actions(), " "); got != all {
		t.Errorf("%s", got)
	}
}
