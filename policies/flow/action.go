package flow

import (
	"fmt"

	"github.com/pfar/pfar/policies/failure"
)

// Failed is the action of a call that has failed without a class that pfar knows.
const Failed = "failed"

// Action is the action with which a call of a class ends: that of an edge which is taken then. Failed is that of a
// class that is not known.
func Action(c failure.Class) string {
	switch c {
	case failure.RateLimited:
		return "rate_limited"
	case failure.Unauthorized, failure.Forbidden:
		return "auth_failed"
	case failure.NotFound:
		return "resource_missing"
	case failure.Timeout:
		return "timeout"
	case failure.ServerError:
		return "server_error"
	case failure.NetworkError:
		return "network_error"
	case failure.TLS:
		return "tls_failed"
	case failure.Schema:
		return "schema_mismatch"
	case failure.Died:
		return "server_died"
	}
	return Failed
}

// Actions are those that a call of a tool may end with: Default first, then in the order of failure.Classes.
func Actions() []string {
	all := []string{Default}
	for _, c := range failure.Classes() {
		if a := Action(c); all[len(all)-1] != a { // unauthorized and forbidden
			all = append(all, a)
		}
	}
	return append(all, Failed)
}

// Words says for people why a call has failed, and what to do. service is the server's name. text is what the server
// said, or the error: it stands only where the class is not known, and may be a stranger's.
func Words(f failure.Failure, service, text string) string {
	switch f.Class {
	case failure.RateLimited:
		when := "later"
		if f.After > 0 {
			when = fmt.Sprintf("in %d s", f.After)
		}
		return fmt.Sprintf("%s API rate limit exceeded. Please try again %s.", service, when)
	case failure.Unauthorized:
		return fmt.Sprintf("Authentication failed. Check your %s token.", service)
	case failure.Forbidden:
		return "Permission denied. Check your token scopes."
	case failure.NotFound:
		return "Resource not found. Check the names and the query."
	case failure.Timeout:
		return "Request timed out. Please try again."
	case failure.ServerError:
		return fmt.Sprintf("%s server error. Please try again later.", service)
	case failure.NetworkError:
		return "Network error. Check your connection."
	case failure.TLS:
		return fmt.Sprintf("TLS failed: the host of %s did not prove its identity. Check its name and certificate.", service)
	case failure.Schema:
		return fmt.Sprintf("The answer of %s does not conform to the tool's schema.", service)
	case failure.Died:
		return fmt.Sprintf("The process of %s has ended. Start it: pfar start %[1]s", service)
	}
	return "MCP error: " + text
}
