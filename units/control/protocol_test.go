package control

import (
	"bytes"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/tests/transcript"
)

var update = flag.Bool("update", false, "add to testdata/protocol.txt what is new in this version")

// TestProtocol: while both are upgraded, a gateway of the version before asks this version's pfard, or the other way
// round. pfard refuses a request with a member that it does not know, since that may be a restriction.
func TestProtocol(t *testing.T) {
	var requests, responses []any
	for _, v := range verbs {
		requests = append(requests, Request{Verb: v})
	}
	for code := range refusals() {
		responses = append(responses, Response{Refusing: Refusing{Error: "text", Code: code}})
	}
	slices.SortFunc(responses, func(a, b any) int { return strings.Compare(string(a.(Response).Code), string(b.(Response).Code)) })
	for _, then := range []Then{Restarts, Waits, Starts, Later, RunsOn, Unconfirmed} {
		responses = append(responses, Response{Changes: []Change{{Key: "text", Uses: []Use{{Server: "text", Then: then}}}}})
	}
	transcript.Hold(t, "testdata/protocol.txt", *update,
		transcript.Kind{Name: "request", Zero: Request{}, Such: []any{Status}, Strict: true, Also: requests, Read: func(b []byte) (any, error) {
			return readRequest(bytes.NewReader(b), maxRequest)
		}},
		transcript.Kind{Name: "response", Zero: Response{}, Such: []any{access.DigestOf([]byte("text")), gate.Internal}, Also: responses})
}
