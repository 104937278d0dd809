package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
	"github.com/pfar/pfar/units/packet"
)

// limits let no test wait long for what is made at intervals, and have no clock end on a slow machine; a test of a
// timeout shortens it.
func limits() registry.Limits {
	l := registry.DefaultLimits()
	l.Handshake, l.Call, l.Write, l.Refresh = 2*time.Minute, 2*time.Minute, 2*time.Minute, 50*time.Millisecond
	return l
}

func names(t *testing.T, r *registrytest.Registry, endpoint string, k registry.Kind) []string {
	t.Helper()
	v, err := r.Catalogue().View(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	page, _ := v.Lists[k].Page("")
	var list map[string][]struct{ Name, URI, URITemplate string }
	if err := json.Unmarshal(page, &list); err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	var all []string
	for _, items := range list {
		for _, i := range items {
			all = append(all, i.Name+i.URI+i.URITemplate)
		}
	}
	return all
}

func call(r *registrytest.Registry, tool, message string) (string, error) {
	route, err := r.Catalogue().Named(registry.Tools, "", tool)
	if err != nil {
		return "", err
	}
	result, err := route.Upstream.Call(context.Background(), protocol.Call{
		Method: "tools/call", Params: fmt.Appendf(nil, `{"name":%q,"arguments":{"message":%q}}`, route.Name, message),
	})
	return string(result), err
}

func echoed(message string) string {
	return fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, message)
}

func code(err error) int {
	var e *jsonrpc.Error
	if errors.As(err, &e) && e.Raw == nil {
		return e.Code
	}
	return 0
}

func TestHonest(t *testing.T) {
	r := registrytest.New(t, limits())
	l := r.Launch(t, handover.Server{Name: "one", Label: "internal"}, registrytest.Script{})
	if got := l.Ready(t); got.Tools != 1 || got.Protocol != "2025-11-25" || got.Server != "scripted 1" {
		t.Errorf("ready: %+v", got)
	}
	if got, err := call(r, "one__echo", "hi"); err != nil || got != echoed("hi") {
		t.Errorf("got %s, %v", got, err)
	}
	var sent []string
	for len(l.Lines) > 0 {
		sent = append(sent, <-l.Lines)
	}
	want := []string{"initialize", "notifications/initialized", "tools/list", "tools/call"}
	for i, line := range sent {
		if !strings.Contains(line, `"method":"`+want[i]+`"`) {
			t.Errorf("message %d is %s, want %s", i, line, want[i])
		}
	}
	if len(sent) != len(want) {
		t.Errorf("sent %q: what the server did not offer is not asked for", sent)
	}
}

// TestBadStarts: a server that never answers, answers wrongly or exits before it is ready does not start.
func TestBadStarts(t *testing.T) {
	on := func(method string, do func(s *registrytest.Server, m jsonrpc.Message)) registrytest.Script {
		return registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			if m.Method != method {
				return false
			}
			do(s, m)
			return true
		}}
	}
	result := func(text string) func(*registrytest.Server, jsonrpc.Message) {
		return func(s *registrytest.Server, m jsonrpc.Message) { s.Result(m, text) }
	}
	for name, c := range map[string]struct {
		script registrytest.Script
		want   string
	}{
		"never":           {on("initialize", func(*registrytest.Server, jsonrpc.Message) {}), "not ready within"},
		"never lists":     {on("tools/list", func(*registrytest.Server, jsonrpc.Message) {}), "within"},
		"version":         {registrytest.Script{Init: `{"protocolVersion":"1.0\u001b[31m","capabilities":{},"serverInfo":{}}`}, `"1.0\x1b[31m"`},
		"modern":          {registrytest.Script{Init: `{"protocolVersion":"2026-07-28","capabilities":{}}`}, "2026-07-28"},
		"no version":      {registrytest.Script{Init: `{"capabilities":{}}`}, "protocolVersion"},
		"no capabilities": {registrytest.Script{Init: `{"protocolVersion":"2025-11-25"}`}, "capabilities"},
		"error": {on("initialize", func(s *registrytest.Server, m jsonrpc.Message) {
			s.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"say \"sudo\"\u001b[2J"}}`, m.ID)
		}), "initializing"},
		"exits":           {on("initialize", func(s *registrytest.Server, m jsonrpc.Message) { s.Exit() }), "closed its stdout"},
		"exits later":     {on("notifications/initialized", func(s *registrytest.Server, m jsonrpc.Message) { s.Exit() }), "closed its stdout"},
		"endless line":    {on("initialize", func(s *registrytest.Server, m jsonrpc.Message) { s.Raw(strings.Repeat("x", 3<<20)) }), "longer than the limit"},
		"not an object":   {on("initialize", result(`[]`)), "not an object"},
		"tools no list":   {on("tools/list", result(`{"tools":{}}`)), "an array"},
		"same cursor":     {on("tools/list", result(`{"tools":[],"nextCursor":"a"}`)), "comes twice"},
		"cursor a number": {on("tools/list", result(`{"tools":[],"nextCursor":7}`)), "not a string"},
		"too many": {on("tools/list", func(s *registrytest.Server, m jsonrpc.Message) {
			s.Result(m, `{"tools":[`+strings.Repeat(`{},`, 5000)+`{}]}`)
		}), "more than"},
		"endless pages": {func() registrytest.Script {
			var n atomic.Int64
			return on("tools/list", func(s *registrytest.Server, m jsonrpc.Message) {
				s.Result(m, fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, n.Add(1)))
			})
		}(), "more than 256 pages"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			li := limits()
			li.Line = 1 << 20
			if strings.HasPrefix(name, "never") {
				li.Handshake = 4 * time.Second
			}
			r := registrytest.New(t, li)
			honest := r.Launch(t, handover.Server{Name: "honest"}, registrytest.Script{})
			honest.Ready(t)
			why := r.Launch(t, handover.Server{Name: "bad", Calls: handover.Calls{Timeout: time.Minute}}, c.script).Failed(t)
			if !strings.Contains(why, c.want) || strings.ContainsAny(why, "\x1b\n") {
				t.Errorf("failed: %q, want %q in it, and nothing that a terminal acts on", why, c.want)
			}
			if _, err := call(r, "bad__echo", ""); code(err) != protocol.CodeUnavailable || !strings.Contains(err.Error(), "since") {
				t.Errorf("calling it: %v", err)
			}
			if got, err := call(r, "honest__echo", "x"); err != nil || got != echoed("x") {
				t.Errorf("the honest server: %s, %v", got, err)
			}
		})
	}
}

// answering returns a script that answers calls of echo as told; the message "honest" is answered honestly.
func answering(do func(s *registrytest.Server, m jsonrpc.Message)) registrytest.Script {
	return registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method != "tools/call" || strings.Contains(string(m.Params), `"honest"`) {
			return false
		}
		do(s, m)
		return true
	}}
}

// TestBadAnswers: after a bad answer the call ends as it should, and the next one gets its own answer.
func TestBadAnswers(t *testing.T) {
	say := func(format string) func(*registrytest.Server, jsonrpc.Message) {
		return func(s *registrytest.Server, m jsonrpc.Message) {
			s.Raw(strings.ReplaceAll(format, "ID", string(m.ID)) + "\n")
		}
	}
	const good = `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`
	for name, c := range map[string]struct {
		do    func(*registrytest.Server, jsonrpc.Message)
		want  string // in the error; "" for a result
		fault protocol.Fault
	}{
		"noise":         {say("banner\n\n[1]\n\x1b[31mred\n{\"half\":\n" + good), "", protocol.Noise},
		"both":          {say(`{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"x"}}`), "both", ""},
		"neither":       {say(`{"jsonrpc":"2.0","id":ID}`), "neither", ""},
		"no version":    {say(`{"id":ID,"result":{}}`), "not marked", ""},
		"wrong version": {say(`{"jsonrpc":"1.0","id":ID,"result":{}}`), "not marked", ""},
		"result array":  {say(`{"jsonrpc":"2.0","id":ID,"result":[]}`), "not an object", ""},
		"result null":   {say(`{"jsonrpc":"2.0","id":ID,"result":null}`), "not an object", ""},
		"error text":    {say(`{"jsonrpc":"2.0","id":ID,"error":"x"}`), "not an object with code", ""},
		"error shape":   {say(`{"jsonrpc":"2.0","id":ID,"error":{"code":"1","message":"x"}}`), "not an object with code", ""},
		"bad UTF-8":     {say("{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"a\":\"\xff\"}}"), "invalid UTF-8", ""},
		"deep": {say(`{"jsonrpc":"2.0","id":ID,"result":{"a":` + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + `}}`),
			"200002 levels deep", ""},
		"brackets":        {say(strings.Repeat("[", 500_000) + "\n" + good), "", protocol.Noise},
		"twice":           {say(good + "\n" + good), "", protocol.Unsolicited},
		"unasked":         {say(`{"jsonrpc":"2.0","id":99999,"result":{"content":[{"type":"text","text":"evil"}]}}` + "\n" + good), "", protocol.Unsolicited},
		"id text":         {say(`{"jsonrpc":"2.0","id":"ID","result":{"content":[{"type":"text","text":"evil"}]}}` + "\n" + good), "", protocol.MistypedID},
		"id fraction":     {say(`{"jsonrpc":"2.0","id":ID.0,"result":{"content":[{"type":"text","text":"evil"}]}}` + "\n" + good), "", protocol.MistypedID},
		"id null":         {say(`{"jsonrpc":"2.0","id":null,"result":{}}` + "\n" + good), "", protocol.MistypedID},
		"duplicate key":   {say(`{"jsonrpc":"2.0","id":1,"id":ID,"result":{"content":[{"type":"text","text":"evil"}]}}` + "\n" + good), "", protocol.Noise},
		"sampling":        {say(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}` + "\n" + good), "", protocol.Request},
		"elicit":          {say(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}` + "\n" + good), "", protocol.Request},
		"roots":           {say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}` + "\n" + good), "", protocol.Request},
		"note flood":      {say(strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`+"\n", 20_000) + good), "", protocol.Flood},
		"progress flood":  {say(strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`+"\n", 20_000) + good), "", protocol.Flood},
		"request flood":   {say(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`+"\n", 2_000) + good), "", protocol.Request},
		"hang":            {func(*registrytest.Server, jsonrpc.Message) {}, "did not answer tools/call within", ""},
		"drip":            {drip, "", ""},
		"torn":            {say(`{"jsonrpc":"2.0","id":ID,"result":{"content":[{"text":"`), "with a line that cannot be read: the line is not a valid JSON-RPC message", protocol.Noise},
		"not a number":    {say(`{"jsonrpc":"2.0","result":{"n":NaN},"id" : ID}`), "with a line that cannot be read", protocol.Noise},
		"id text alone":   {say(`{"jsonrpc":"2.0","id":"ID","result":{}}`), "cannot be read: the answer's id is not the number", protocol.MistypedID},
		"carriage return": {say(good + "\r"), "", ""},
		"blank lines":     {say(strings.Repeat("\n", 10_000) + good), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			li := limits()
			if name == "hang" {
				li.Call = 4 * time.Second
			}
			r := registrytest.New(t, li)
			r.Launch(t, handover.Server{Name: "s"}, answering(c.do)).Ready(t)
			got, err := call(r, "s__echo", "")
			if c.want == "" && (err != nil || got != `{"content":[]}`) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %s, %v, want error %q", got, err, c.want)
			}
			if got, err := call(r, "s__echo", "honest"); err != nil || got != echoed("honest") {
				t.Errorf("the next call: %s, %v", got, err)
			}
			route, err := r.Catalogue().Named(registry.Tools, "s", "echo")
			if err != nil {
				t.Fatal(err)
			}
			if n := route.Upstream.Faults()[c.fault]; c.fault != "" && n == 0 {
				t.Errorf("faults %v, want %q counted", route.Upstream.Faults(), c.fault)
			}
		})
	}
}

// drip answers a byte at a time.
func drip(s *registrytest.Server, m jsonrpc.Message) {
	for _, c := range fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`+"\n", m.ID) {
		s.Raw(string(c))
	}
}

// TestErrorsPassAsTheyCome: an honest error object is the client's business, unknown members included.
func TestErrorsPassAsTheyCome(t *testing.T) {
	r := registrytest.New(t, limits())
	const raw = `{"message":"no \u00e9","code":-32099,"data":{"x":1.0},"more":[1e2]}`
	r.Launch(t, handover.Server{Name: "s"}, answering(func(s *registrytest.Server, m jsonrpc.Message) {
		s.Say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, raw)
	})).Ready(t)
	_, err := call(r, "s__echo", "")
	var e *jsonrpc.Error
	if !errors.As(err, &e) || string(e.JSON()) != raw {
		t.Errorf("got %v, want %s", err, raw)
	}
}

// TestLateAnswer: an answer that comes after its call was given up is nobody's.
func TestLateAnswer(t *testing.T) {
	r := registrytest.New(t, limits())
	var first []byte
	ctx, giveUp := context.WithCancel(t.Context())
	r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		switch {
		case m.Method == "notifications/cancelled":
			s.Say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"late"}]}}`, first)
		case m.Method == "tools/call" && first == nil:
			first = m.ID
			giveUp()
		default:
			return false
		}
		return true
	}}).Ready(t)
	route, err := r.Catalogue().Named(registry.Tools, "", "s__echo")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := route.Upstream.Call(ctx, protocol.Call{Method: "tools/call", Params: []byte(`{"name":"echo"}`)}); err == nil {
		t.Fatal("a call that is not answered ends well")
	}
	for i := range 20 {
		want := fmt.Sprint(i)
		if got, err := call(r, "s__echo", want); err != nil || got != echoed(want) {
			t.Fatalf("call %d: %s, %v", i, got, err)
		}
	}
}

// TestSwap: answers in another order than the calls reach the right callers.
func TestSwap(t *testing.T) {
	r := registrytest.New(t, limits())
	held := make(chan jsonrpc.Message, 64)
	r.Launch(t, handover.Server{Name: "s"}, answering(func(s *registrytest.Server, m jsonrpc.Message) {
		held <- m
		if len(held) < 64 {
			return
		}
		all := make([]jsonrpc.Message, 0, 64)
		for range 64 {
			all = append(all, <-held)
		}
		for i := range all {
			m := all[len(all)-1-i]
			var p struct{ Arguments struct{ Message string } }
			_ = json.Unmarshal(m.Params, &p)
			s.Result(m, echoed(p.Arguments.Message))
		}
	})).Ready(t)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			want := fmt.Sprint("call ", i)
			if got, err := call(r, "s__echo", want); err != nil || got != echoed(want) {
				t.Errorf("%s: %s, %v", want, got, err)
			}
		})
	}
	all.Wait()
}

// TestStalledStdin: a server that does not read costs its callers an error, and nobody else anything.
func TestStalledStdin(t *testing.T) {
	li := limits()
	li.Write = 300 * time.Millisecond
	r := registrytest.New(t, li)
	r.Launch(t, handover.Server{Name: "honest"}, registrytest.Script{}).Ready(t)
	release := make(chan struct{})
	defer close(release)
	r.Launch(t, handover.Server{Name: "s"}, answering(func(*registrytest.Server, jsonrpc.Message) { <-release })).Ready(t)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := call(r, "s__echo", strings.Repeat("x", 16<<10)); err == nil {
				t.Error("a call that nobody read ends well")
			}
		})
	}
	if got, err := call(r, "honest__echo", "x"); err != nil || got != echoed("x") {
		t.Errorf("the honest server: %s, %v", got, err)
	}
	all.Wait()
}

// TestBusy: calls beyond the cap wait, calls beyond the queue are refused at once.
func TestBusy(t *testing.T) {
	li := limits()
	li.Concurrent, li.Waiting, li.Call = 2, 3, 4*time.Second
	r := registrytest.New(t, li)
	r.Launch(t, handover.Server{Name: "s"}, answering(func(*registrytest.Server, jsonrpc.Message) {})).Ready(t)
	var busy, late atomic.Int64
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			switch _, err := call(r, "s__echo", ""); {
			case code(err) == protocol.CodeBusy:
				busy.Add(1)
			case err != nil:
				late.Add(1)
			}
		})
	}
	all.Wait()
	if busy.Load() != 5 || late.Load() != 5 {
		t.Errorf("%d refused, %d timed out, want 5 and 5", busy.Load(), late.Load())
	}
}

func TestCancelGoesUpstream(t *testing.T) {
	r := registrytest.New(t, limits())
	cancelled := make(chan string, 1)
	called := make(chan string, 1)
	r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		switch m.Method {
		case "tools/call":
			called <- string(m.ID)
		case "notifications/cancelled":
			cancelled <- string(m.Params)
		default:
			return false
		}
		return true
	}}).Ready(t)
	route, err := r.Catalogue().Named(registry.Tools, "s", "echo")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := route.Upstream.Call(ctx, protocol.Call{Method: "tools/call", Params: []byte(`{"name":"echo"}`)})
		done <- err
	}()
	id := <-called
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled call ends well")
	}
	if got := <-cancelled; !strings.Contains(got, `"requestId":`+id) {
		t.Errorf("the server was told %s, want request %s", got, id)
	}
}

// TestPing: a server's ping is answered, its other requests are refused with its own id.
func TestPing(t *testing.T) {
	r := registrytest.New(t, limits())
	answers := make(chan string, 2)
	l := r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method == "" {
			answers <- string(m.ID) + string(m.Result) + string(m.Error)
			return true
		}
		return false
	}})
	l.Ready(t)
	l.Say(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	if got := <-answers; got != `"p"{}` {
		t.Errorf("ping: %s", got)
	}
	l.Say(`{"jsonrpc":"2.0","id":-5,"method":"sampling/createMessage"}`)
	if got := <-answers; !strings.HasPrefix(got, `-5{"code":-32601`) {
		t.Errorf("sampling: %s", got)
	}
}

// TestResources: the resource of one server is not reached by another that lists it, or names it by a template; of what
// is not one server's alone, on the aggregate, each is told.
func TestResources(t *testing.T) {
	r := registrytest.New(t, limits())
	offer := func(name, resources, templates string) *registrytest.Launched {
		return r.Launch(t, handover.Server{Name: name}, registrytest.Script{Capabilities: `{"resources":{}}`, Lists: map[string]string{
			"resources/list": `{"resources":[` + resources + `]}`, "resources/templates/list": `{"resourceTemplates":[` + templates + `]}`,
		}})
	}
	greedy := offer("greedy", `{"uri":"file:///etc/shadow","name":"x"},{"uri":"no scheme","name":"y"},{"uri":"a:\u0001","name":"z"},{"uri":"Ui://page","name":"page"},{"uri":"x://page","name":"page","mimeType":"text/html;profile=mcp-\u00adapp"},{"uri":"y://page","name":"page","MimeType":"text/html;profile=mcp-app"}`, `{"uriTemplate":"{+all}","name":"all"},{"uriTemplate":"ui://{page}","name":"pages"},{"uriTemplate":"x://{page}","name":"pages","mimeType":"text/html+skybridge"},{"uriTemplate":"mail://b{+rest}","name":"rest"},{"uriTemplate":"{","name":"broken"}`)
	if got := greedy.Ready(t); got.Apart != 1 {
		t.Errorf("alone: %+v", got)
	}
	mail := offer("mail", `{"uri":"mail://inbox","name":"inbox"},{"uri":"file:///etc/shadow","name":"x"}`, `{"uriTemplate":"mail://box/{id}","name":"box"},{"uriTemplate":"mail://{id}","name":"one"}`)
	if got := mail.Ready(t); got.Apart != 1 || !strings.Contains(strings.Join(got.Why, "\n"), `"file:///etc/shadow" is not on /mcp, for another server has it, too: it is at /mcp/mail`) {
		t.Errorf("mail: %+v", got)
	}
	if got := greedy.Ready(t); got.Apart != 2 {
		t.Errorf("since then: %+v", got)
	}
	for uri, want := range map[string]string{"mail://inbox": "mail", "mail://x": "mail", "x://y": "", "search://hello%20world": "", "lang://C%23": ""} {
		route, ok, err := r.Catalogue().ByURI("", uri)
		if err != nil || ok != (want != "") || ok && route.Upstream.Server().Name != want {
			t.Errorf("%s: %v, %v, want %s", uri, ok, err, want)
		}
	}
	for _, uri := range []string{"file:///etc/shadow", "mail://box/7", "mail://beta"} {
		if _, ok, err := r.Catalogue().ByURI("", uri); ok || err == nil || !strings.Contains(err.Error(), "is ambiguous, for the servers greedy, mail have it") {
			t.Errorf("%s: %v, %v", uri, ok, err)
		}
		if route, ok, err := r.Catalogue().ByURI("greedy", uri); !ok || err != nil || route.Upstream.Server().Name != "greedy" {
			t.Errorf("%s of greedy: %v, %v", uri, ok, err)
		}
	}
	if _, ok, _ := r.Catalogue().ByURI("greedy", "search://x"); !ok {
		t.Error("at its own endpoint, a template needs no scheme")
	}
	for uri, want := range map[string]bool{"mail://inbox": true, "mail://box/7": true, "mail://box/7/8": false, "x://y": false, "": false, "mail://box/\x01": false} {
		if _, ok, err := r.Catalogue().ByURI("mail", uri); ok != want || err != nil {
			t.Errorf("%q of mail: %v, %v, want %v", uri, ok, err, want)
		}
	}
	for _, page := range []string{"ui://page", "Ui://page", "ui://other"} { // though "{+all}" fits them
		if _, ok, err := r.Catalogue().ByURI("greedy", page); ok || err != nil {
			t.Errorf("%s is served: %v", page, err)
		}
	}
	if got := fmt.Sprint(names(t, r, "", registry.Templates)); got != "[restmail://b{+rest} boxmail://box/{id} onemail://{id}]" {
		t.Errorf("templates: %s", got)
	}
	if got := fmt.Sprint(names(t, r, "", registry.Resources)); got != "[inboxmail://inbox]" {
		t.Errorf("listed %s", got)
	}
}

// TestLaunchers: a launcher hands over what whoever connected for it has said, or is refused.
func TestLaunchers(t *testing.T) {
	r := registrytest.New(t, limits())
	expect := func(name, session string) handover.Message {
		return handover.Message{Expect: &handover.Server{Name: name, Session: session}}
	}
	hello := func(name, session string) handover.Message {
		return handover.Message{Hello: &handover.Hello{Name: name, Session: session}}
	}
	for name, tt := range map[string]struct {
		first, second handover.Message
		files         int // with the second
	}{
		"nothing expected":    {hello("s", ""), hello("s", ""), 2},
		"path":                {expect("../x", ""), hello("../x", ""), 2},
		"underscore":          {expect("a_b", ""), hello("a_b", ""), 2},
		"long":                {expect(strings.Repeat("a", 24), ""), hello(strings.Repeat("a", 24), ""), 2},
		"no session's handle": {expect("s", "../x"), hello("s", "../x"), 2},
		"no hello":            {expect("s", ""), handover.Message{Stopping: true}, 2},
		"another server":      {expect("s", ""), hello("notion", ""), 2},
		"a session":           {expect("s", ""), hello("s", "abcdefg2"), 2},
		"another session":     {expect("s", "abcdefg2"), hello("s", "bbbbbbbb"), 2},
		"all, of a session":   {expect("s", "abcdefg2"), hello("s", ""), 2},
		"expected again":      {expect("s", ""), expect("notion", ""), 2},
		"no descriptors":      {expect("s", ""), hello("s", ""), 0},
		"one descriptor":      {expect("s", ""), hello("s", ""), 1},
		"three descriptors":   {expect("s", ""), hello("s", ""), 3},
	} {
		p, err := packet.Dial(r.Path)
		if err != nil {
			t.Fatal(err)
		}
		c := &handover.Conn{Conn: p}
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Send(tt.first)
		_ = c.Send(tt.second, slices.Repeat([]*os.File{null}, tt.files)...) // the registry may have hung up
		null.Close()
		if m, _, err := c.Receive(); err == nil {
			t.Errorf("%s: got %+v, want the connection closed", name, m)
		}
		c.Close()
	}
	if len(r.Catalogue().States()) != 0 {
		t.Errorf("known: %v", r.Catalogue().States())
	}
}

// TestLargeResult: a line of almost the limit passes whole, one beyond it costs the server its life and no more.
func TestLargeResult(t *testing.T) {
	li := limits()
	li.Line = 4 << 20
	r := registrytest.New(t, li)
	size := 4<<20 - 1024
	text := strings.Repeat("x", 8<<20)
	r.Launch(t, handover.Server{Name: "s"}, answering(func(s *registrytest.Server, m jsonrpc.Message) {
		s.Result(m, `{"content":[{"type":"text","text":"`+text[:size]+`"}]}`)
	})).Ready(t)
	for range 3 {
		if got, err := call(r, "s__echo", ""); err != nil || got != echoed(text[:size]) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if got, err := call(r, "s__echo", "honest"); err != nil || got != echoed("honest") {
			t.Fatalf("the next: %s, %v", got, err)
		}
	}
	size = 8 << 20
	if _, err := call(r, "s__echo", ""); code(err) != protocol.CodeUnavailable ||
		!strings.Contains(err.Error(), "longer than the limit") {
		t.Errorf("beyond the limit: %v", err)
	}
}

// TestStoppedBecauseItFailed: a launcher stops the process whose handshake has failed. Clients go on hearing why it
// failed.
func TestStoppedBecauseItFailed(t *testing.T) {
	r := registrytest.New(t, registry.DefaultLimits())
	l := r.Launch(t, handover.Server{Name: "bad"}, registrytest.Script{Init: `[]`})
	l.Failed(t)
	if err := l.Conn.Send(handover.Message{Stopping: true}); err != nil {
		t.Fatal(err)
	}
	f, err := l.Conn.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Shutdown(int(f.Fd()), unix.SHUT_WR); err != nil { // no more is to come: the gateway has read all of it
		t.Fatal(err)
	}
	if m, err := l.Next(t); err != io.EOF {
		t.Fatalf("got %+v, %v", m, err)
	}
	_, err = r.Catalogue().View("bad")
	if err == nil || strings.Contains(err.Error(), "being stopped") ||
		!strings.Contains(err.Error(), "the server does not keep to the protocol") ||
		!strings.Contains(remedy(err), "pfar logs bad") {
		t.Errorf("clients hear %v; %s", err, remedy(err))
	}
}

// remedy is what clients hear beside an error, "" if its class is not known.
func remedy(err error) string {
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return e.Told().Remedy
	}
	return ""
}

// TestOtherVersion: a server that is not of the version that its declaration wants offers nothing, and what is to be
// done is said.
func TestOtherVersion(t *testing.T) {
	for version, served := range map[string]bool{"9.9.9": false, "1": true, "": true} {
		for _, modern := range []bool{false, true} {
			r := registrytest.New(t, limits())
			l := r.Launch(t, handover.Server{Name: "s", Version: version}, registrytest.Script{Modern: modern})
			if served {
				l.Ready(t)
				continue
			}
			if why := l.Failed(t); !strings.Contains(why, `it says "1", and not version = "9.9.9"; install that one, or declare the one that runs`) {
				t.Errorf("%q: %s", version, why)
			}
			if _, err := call(r, "s__echo", ""); code(err) != protocol.CodeUnavailable || !strings.Contains(err.Error(), "of another version than its declaration wants") {
				t.Errorf("%q: %v", version, err)
			}
		}
	}
}
