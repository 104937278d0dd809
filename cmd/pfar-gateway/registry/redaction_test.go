package registry_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

const canary = "ntn_4mYq81RzLc0pXvWbT7uKd2"

func secrets() *redact.Set { return redact.New(map[string][]byte{"k": []byte(canary)}) }

// TestRedaction: a secret is in everything that a server says, and in nothing that leaves the registry.
func TestRedaction(t *testing.T) {
	by := protocol.NewRedaction()
	by.Learn(secrets())
	r := registrytest.Prepared(t, limits(), func(r *registrytest.Registry) { r.Redact(by) })
	events := make(chan registry.Event, 64)
	r.Watch(func(e registry.Event) { events <- e })
	progress := make(chan string, 1)
	l := r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{
		Capabilities: `{"tools":{},"logging":{}}`,
		Lists:        map[string]string{"tools/list": `{"tools":[{"name":"echo","description":"` + canary + `","inputSchema":{"type":"object"}}]}`},
		On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			if m.Method != "tools/call" {
				return false
			}
			s.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"%s"}}`, canary)
			params, _ := jsonrpc.Object(m.Params, nil)
			meta, _ := jsonrpc.Object(params.Get("_meta"), nil)
			s.Say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"message":"%x"}}`, meta.Get("progressToken"), canary)
			s.Say(`not JSON: ` + canary)
			if strings.Contains(string(m.Params), "fail") {
				s.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no: %s","data":["%s"]}}`, m.ID, canary, canary)
			} else {
				s.Result(m, fmt.Sprintf(`{"content":[{"type":"text","text":"a %s b"}],"%s":1.50,"n":[1.0]}`, canary, canary))
			}
			return true
		},
	})
	l.Ready(t)
	u := r.Catalogue().Upstreams()[0]
	token := u.Token()
	call := protocol.Call{Method: "tools/call", Params: fmt.Appendf(nil, `{"name":"echo","_meta":{"progressToken":%d}}`, token), Token: token, ClientToken: []byte(`"t"`), Progress: func(p []byte) { progress <- string(p) }}
	got, err := u.Call(t.Context(), call)
	if want := `{"content":[{"type":"text","text":"a [redacted] b"}],"[redacted]":1.50,"n":[1.0]}`; err != nil || string(got) != want {
		t.Errorf("the result is %s, %v, want %s", got, err, want)
	}
	if p := <-progress; !strings.Contains(p, `"message":"[redacted]"`) {
		t.Errorf("progress is %s", p)
	}
	call.Params = fmt.Appendf(nil, `{"name":"fail","_meta":{"progressToken":%d}}`, token)
	var failed *jsonrpc.Error
	if _, err := u.Call(t.Context(), call); !errors.As(err, &failed) || string(failed.Raw) != `{"code":-32000,"message":"no: [redacted]","data":["[redacted]"]}` {
		t.Errorf("the error is %v", err)
	}
	if n := u.Leaks()["k"]; n < 6 {
		t.Errorf("%d were counted", n)
	}
	for {
		e := <-events
		if strings.Contains(string(e.Params), canary) {
			t.Errorf("an event has it: %s", e.Params)
		}
		if e.Method == "notifications/message" {
			break
		}
	}
	v, err := r.Catalogue().View("s")
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := v.Lists[registry.Tools].Page("")
	if strings.Contains(string(raw), canary) {
		t.Errorf("the list has it: %s", raw)
	}
	l.Exit()
	l.Failed(t)
	log := r.Logged()
	for _, form := range []string{canary, hex.EncodeToString([]byte(canary))} {
		if strings.Contains(log, form) {
			t.Errorf("the log has it: %s", log)
		}
	}
	if !strings.Contains(log, "secret=k place=message") {
		t.Errorf("the log does not tell of it: %s", log)
	}
}

// TestNothingBeforeSecretsAreKnown: no line of a server's is taken, no request hangs for ever, and all goes on once
// they are.
func TestNothingBeforeSecretsAreKnown(t *testing.T) {
	by := protocol.NewRedaction()
	r := registrytest.Prepared(t, limits(), func(r *registrytest.Registry) { r.Redact(by) })
	l := r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{Init: `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"` + canary + `","version":"1"}}`})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if m, err := l.NextOr(ctx); err == nil {
		t.Fatalf("before the secrets are known: %+v", m)
	}
	by.Learn(secrets())
	if ready := l.Ready(t); strings.Contains(ready.Server, canary) {
		t.Errorf("its name is %q", ready.Server)
	}
	if got, err := call(r, "s__echo", canary); err != nil || got != echoed("[redacted]") {
		t.Errorf("%s, %v", got, err)
	}
	// A server that was given a secret which the gateway has not heard of is not read before it has.
	later := redact.New(map[string][]byte{"later": []byte("glpat-1aB2cD3eF4gH5iJ6kL7m")})
	r.Secrets = later.Serial()
	second := r.Launch(t, handover.Server{Name: "t"}, registrytest.Script{})
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if m, err := second.NextOr(ctx); err == nil {
		t.Fatalf("before the secret is known: %+v", m)
	}
	by.Learn(later)
	second.Ready(t)
	if got, err := call(r, "t__echo", "glpat-1aB2cD3eF4gH5iJ6kL7m"); err != nil || got != echoed("[redacted]") {
		t.Errorf("%s, %v", got, err)
	}
	by.Learn(redact.New(nil))
	if got, err := call(r, "s__echo", canary); err != nil || got != echoed(canary) {
		t.Errorf("with another vault: %s, %v", got, err)
	}
}
