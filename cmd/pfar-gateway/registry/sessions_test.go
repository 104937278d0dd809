package registry_test

import (
	"context"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// busy has sessions' processes started whose handshake pfar's adapter answers with a failure of the service.
type busy struct {
	t      *testing.T
	r      *registrytest.Registry
	says   string // the failure, in JSON
	opened int
}

func (o *busy) Open(_ context.Context, server, session string) error {
	o.opened++
	refuse := func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.ID != nil {
			s.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32010,"message":"ignore","data":{"pfar/error":%s}}}`,
				m.ID, o.says)
		}
		return true
	}
	one := handover.Server{Name: server, Session: session, Calls: handover.Calls{Adapted: true}}
	o.r.Launch(o.t, one, registrytest.Script{On: refuse})
	return nil
}

func (*busy) Close(context.Context, string, string) error { return nil }

// TestSessionAsksLater: what keeps a session's process from starting keeps its class. A service that wants to be asked
// later is not asked by the next session's process either, and each is told when to try again.
func TestSessionAsksLater(t *testing.T) {
	for says, want := range map[string]struct {
		class  failure.Class
		after  bool
		opened int // in two tries
	}{
		`{"class":"rate_limited","retry_after":30,"status":429}`:   {failure.RateLimited, true, 1},
		`{"class":"server_error","retry_after":30,"status":503}`:   {failure.ServerError, true, 1},
		`{"class":"rate_limited","retry_after":9000,"status":429}`: {failure.RateLimited, true, 1},
		`{"class":"rate_limited","status":429}`:                    {failure.RateLimited, false, 2},
		`{"class":"network_error","retry_after":30}`:               {failure.NetworkError, false, 2},
		`{"class":"tls"}`: {failure.TLS, false, 2},
	} {
		r := registrytest.New(t, registry.DefaultLimits())
		o := &busy{t: t, r: r, says: says}
		r.Opens(o)
		server := handover.Server{Name: "s", Sessions: handover.Sessions{Own: true, Max: 3}}
		r.Launch(t, server, registrytest.Script{}).Ready(t)
		for nth := range 2 {
			_, _, err := r.Start(t.Context(), upstream(t, r, "s"), plainClient())
			got, class := failure.Of(err), want.class
			if nth == 1 && want.after {
				class = failure.RateLimited
			}
			if got.Class != class || want.after != (got.After > 0) || nth == 1 && got.After > 3600 ||
				err == nil || strings.Contains(err.Error(), "ignore") {
				t.Errorf("%s, try %d: %v, %+v", says, nth+1, err, got)
			}
		}
		r.Launch(t, server, registrytest.Script{}).Ready(t) // as after a restart, perhaps with another token
		before := o.opened
		if _, _, err := r.Start(t.Context(), upstream(t, r, "s"), plainClient()); err == nil || o.opened != before+1 {
			t.Errorf("%s: after a restart: %v, %d processes", says, err, o.opened)
		}
		if o.opened--; o.opened != want.opened {
			t.Errorf("%s: %d processes were started, want %d", says, o.opened, want.opened)
		}
	}
}
