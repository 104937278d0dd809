package telemetry

import (
	"crypto/rand"
	"strconv"
	"strings"
	"sync/atomic"
)

var (
	process  = strings.ToLower(rand.Text()[:6]) // tells this process from those before it: 30 bits
	requests atomic.Uint64
)

// RequestID returns an id for one client request, such as "k3x7qa-1f": unique in this process, and among processes as
// good as. It says nothing that is secret and is not to be relied on as one.
func RequestID() string {
	var b [24]byte
	return string(strconv.AppendUint(append(append(b[:0], process...), '-'), requests.Add(1), 36))
}
