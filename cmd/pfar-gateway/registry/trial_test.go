package registry_test

import (
	"fmt"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestRefresh: a server is asked again though it says nothing, and what has changed is told.
func TestRefresh(t *testing.T) {
	r := registrytest.New(t, limits())
	tools := make(chan string, 1)
	tools <- registrytest.Echo
	now := registrytest.Echo
	l := r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{On: func(s *registrytest.Server,
		m jsonrpc.Message) bool {
		if m.Method != "tools/list" {
			return false
		}
		select {
		case now = <-tools:
		default:
		}
		s.Result(m, `{"tools":[`+now+`]}`)
		return true
	}})
	l.Ready(t)
	if list, err := r.Refresh(t.Context(), "s"); err != nil || len(list) > 0 {
		t.Errorf("at first %v, %v", list, err)
	}
	tools <- `{"name":"echo","inputSchema":{"type":"object","required":["message"]}},` +
		`{"name":"more","inputSchema":{"type":"object"}}`
	list, err := r.Refresh(t.Context(), "s")
	if err != nil || len(list) != 2 || list[0].Name != "echo" || !list[0].Breaking() || list[1].What != drift.New {
		t.Errorf("then %+v, %v", list, err)
	}
	if offers, err := r.Offers("s"); err != nil || len(offers) != 2 || offers[0].Kind != "tool" {
		t.Errorf("it offers %s, %v", fmt.Sprint(offers), err)
	}
	if _, err := r.Refresh(t.Context(), "none"); err == nil {
		t.Error("a server that is not there is refreshed")
	}
}
