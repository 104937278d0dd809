package remote

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestStepUpWithoutEnd: a server that wants one more scope whatever it is shown is asked once for each call, each call
// says what its owner can do, and the adapter neither tries again nor ends.
func TestStepUpWithoutEnd(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	h := &honest{t: t, other: func(w http.ResponseWriter, _ *http.Request, m received) bool {
		if m.Method == "" || m.Method == "initialize" || strings.HasPrefix(m.Method, "notifications/") {
			return false
		}
		mu.Lock()
		asked = append(asked, m.Method)
		mu.Unlock()
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="write"`)
		w.WriteHeader(http.StatusForbidden)
		return true
	}}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		for id := 2; id < 5; id++ {
			w.send(call, id)
			w.wantFault(id, "forbidden", "HTTP 403 Forbidden, for want of a scope: its owner asks for it with pfar login "+
				thisHost()+" --scope write")
			w.silent(time.Hour)
		}
	})
	if want := slices.Repeat([]string{"tools/call"}, 3); !slices.Equal(asked, want) {
		t.Errorf("the server was asked %q, want %q", asked, want)
	}
}
