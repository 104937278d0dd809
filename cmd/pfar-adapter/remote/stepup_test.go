package remote

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestStepUpWithoutEnd: a server refuses every token for want of one more scope. The adapter sends each call once, says
// each time which command asks for the scope, and does not end.
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
			w.wantFault(id, "forbidden", "HTTP 403 Forbidden, for want of a scope: "+
				"its owner asks for it with pfar login "+thisHost()+" --scope write")
			w.silent(time.Hour)
		}
	})
	if want := slices.Repeat([]string{"tools/call"}, 3); !slices.Equal(asked, want) {
		t.Errorf("the server was asked %q, want %q", asked, want)
	}
}
