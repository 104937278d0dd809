package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// library is a Go library's client, connected.
type library interface {
	server() (name, instructions string)
	list(ctx context.Context, member string) ([]string, error) // names, or URIs
	call(ctx context.Context, tool string, arguments object, token string) (any, error)
	prompt(ctx context.Context, name string, arguments map[string]string) (any, error)
	complete(ctx context.Context, kind, subject, argument, value string) (any, error)
	read(ctx context.Context, uri string) (any, error)
	watch(ctx context.Context, uri string) error
	follow(ctx context.Context) error // changes of the list of tools
	failure(err error) object
	close() error
}

// heard is what comes without having been asked for.
type heard struct {
	changed chan struct{}
	updated chan string

	mu       sync.Mutex
	progress map[string]chan []any
}

func newHeard() *heard {
	return &heard{changed: make(chan struct{}, 8), updated: make(chan string, 8), progress: map[string]chan []any{}}
}

// offer sends what somebody waits for; what comes too often, since others cause it too, is dropped.
func offer[T any](c chan T, v T) {
	select {
	case c <- v:
	default:
	}
}

// of returns the progress under a token.
func (h *heard) of(token string) chan []any {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.progress[token] == nil {
		h.progress[token] = make(chan []any, 16)
	}
	return h.progress[token]
}

// startGo starts a run of one of the Go libraries in this process.
func (p *pfar) startGo(t *testing.T, r *run) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
		defer cancel()
		if err := p.runGo(ctx, r); err != nil {
			r.say("error", err.Error())
		}
	}()
	t.Cleanup(func() { <-ended })
}

func (p *pfar) runGo(ctx context.Context, r *run) error {
	h := newHeard()
	lib, err := p.connect(ctx, r, h)
	if err != nil {
		r.say("refused", object{"message": err.Error()})
		return nil
	}
	name, instructions := lib.server()
	r.say("server", name)
	r.say("instructions", instructions)
	for _, member := range []string{"tools", "prompts", "resources", "templates"} {
		names, err := lib.list(ctx, member)
		if err != nil {
			return fmt.Errorf("listing %s: %w", member, err)
		}
		r.say(member, names)
	}
	for _, s := range r.Servers {
		if err := r.visit(ctx, lib, h, s); err != nil {
			return fmt.Errorf("using %s: %w", s.Name, err)
		}
	}
	if err := lib.follow(ctx); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	r.say("ready", true)
	select {
	case <-h.changed:
	case <-ctx.Done():
		return errors.New("nobody said that a list changed")
	}
	after, err := lib.list(ctx, "tools")
	if err != nil {
		r.say("changed", lib.failure(err)["code"])
	} else {
		r.say("changed", after)
	}
	if err := lib.close(); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	r.say("closed", true)
	return nil
}

// plainResult is a result without what is pfar's own and what only one generation has.
func plainResult(result any) any {
	b, err := json.Marshal(result)
	if err != nil {
		return err.Error()
	}
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		return err.Error()
	}
	for _, name := range []string{"_meta", "resultType", "ttlMs", "cacheScope"} {
		delete(o, name)
	}
	return o
}

// visit uses one server.
func (r *run) visit(ctx context.Context, lib library, h *heard, s visited) error {
	say := func(step string, value any) { r.say(s.Name+" "+step, value) }
	for _, step := range []struct {
		tool      string
		arguments object
	}{{"text", object{"message": "h\u00e9llo \U0001f600"}}, {"sum", object{"a": 1, "b": 2.5}}, {"media", object{}}, {"fail", object{}}} {
		result, err := lib.call(ctx, s.Prefix+step.tool, step.arguments, "")
		if err != nil {
			return fmt.Errorf("%s: %w", step.tool, err)
		}
		say(step.tool, plainResult(result))
	}
	if err := r.step(ctx, lib, h, s); err != nil {
		return fmt.Errorf("steps: %w", err)
	}
	if _, err := lib.call(ctx, s.Prefix+"nothing", object{}, ""); err != nil {
		say("unknown", lib.failure(err))
	}
	greeting, err := lib.prompt(ctx, s.Prefix+"greet", map[string]string{"name": "Ada"})
	if err != nil {
		return err
	}
	say("greet", plainResult(greeting))
	if err := r.read(ctx, lib, s); err != nil {
		return err
	}
	if err := r.cancel(ctx, lib, h, s); err != nil {
		return fmt.Errorf("cancelling: %w", err)
	}
	if err := lib.watch(ctx, "plain://"+s.Name+"/text"); err != nil {
		return err
	}
	if _, err := lib.call(ctx, s.Prefix+"touch", object{}, ""); err != nil {
		return err
	}
	for {
		select {
		case uri := <-h.updated:
			if uri == "plain://"+s.Name+"/text" { // others touch what this client watched before
				say("updated", true)
				return nil
			}
		case <-ctx.Done():
			return errors.New("nobody said that a resource changed")
		}
	}
}

// step makes a call that is answered once all its progress has come.
func (r *run) step(ctx context.Context, lib library, h *heard, s visited) error {
	label := r.Name + " of " + s.Name
	type outcome struct {
		result any
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		result, err := lib.call(ctx, s.Prefix+"steps", object{"steps": 3, "label": label}, "progress of "+s.Name)
		ended <- outcome{result, err}
	}()
	var progress [][]any
	for range 3 {
		select {
		case p := <-h.of("progress of " + s.Name):
			progress = append(progress, p)
		case <-ctx.Done():
			return fmt.Errorf("no more progress than %v", progress)
		}
	}
	r.say(s.Name+" progress", progress)
	if _, err := lib.call(ctx, s.Prefix+"release", object{"label": label}, ""); err != nil {
		return err
	}
	o := <-ended
	r.say(s.Name+" steps", plainResult(o.result))
	return o.err
}

// read completes and reads.
func (r *run) read(ctx context.Context, lib library, s visited) error {
	say := func(step string, value any) { r.say(s.Name+" "+step, value) }
	names, err := lib.complete(ctx, "ref/prompt", s.Prefix+"greet", "name", "A")
	if err != nil {
		return err
	}
	say("complete", names)
	ids, err := lib.complete(ctx, "ref/resource", "plain://"+s.Name+"/item/{id}", "id", "G")
	if err != nil {
		return err
	}
	say("complete template", ids)
	for _, path := range []string{"text", "blob", "item/7"} {
		result, err := lib.read(ctx, "plain://"+s.Name+"/"+path)
		if err != nil {
			return err
		}
		say("read "+path, plainResult(result))
	}
	if _, err := lib.read(ctx, "missing://nowhere"); err != nil {
		say("missing", lib.failure(err)["code"])
	}
	return nil
}

// cancel gives a call up once the server has begun it; the server says when it has heard.
func (r *run) cancel(ctx context.Context, lib library, h *heard, s visited) error {
	label, token := r.Name+" of "+s.Name, "wait for "+s.Name
	call, giveUp := context.WithCancel(ctx)
	defer giveUp()
	ended := make(chan error, 1)
	go func() {
		_, err := lib.call(call, s.Prefix+"wait", object{"label": label}, token)
		ended <- err
	}()
	select {
	case <-h.of(token):
	case <-ctx.Done():
		return errors.New("the call did not begin")
	}
	giveUp()
	r.say(s.Name+" given up", <-ended == nil)
	result, err := lib.call(ctx, s.Prefix+"cancelled", object{"label": label}, "")
	if err != nil {
		return err
	}
	b, err := json.Marshal(plainResult(result))
	want, _ := json.Marshal(content(says(label)))
	r.say(s.Name+" cancelled", string(b) == string(want))
	return err
}
