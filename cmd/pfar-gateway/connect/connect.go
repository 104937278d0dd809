// Package connect has set-ups of services begun for clients: the name of a service that a model wishes for in, a link
// for a person and how far the set-up has come out.
package connect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/units/control"
)

// Pfard carries set-ups out (control.Client). It calls changed with the set-up as it is and after each change, until it
// has ended.
type Pfard interface {
	SetUp(ctx context.Context, begin *control.SetUp, changed func(control.Flow) error) error
}

// How many set-ups one client may begin: each puts a page before a person.
const (
	atOnce = 3
	every  = time.Minute
)

// ErrOften is the error of a client that begins too many.
var ErrOften = fmt.Errorf("too many set-ups for this client: after the first %d, it may begin one a minute", atOnce)

// Wishes are what clients wish to have connected.
//
// Their models may read a link. It leads to a page on this machine's loopback, which no confined server reaches: each
// is in a network namespace of its own, and its way out refuses the ports of pages, whatever is declared
// (egress.IsPagePort). A program outside of any sandbox that a model can use acts with its person's rights already.
// Whoever opens the page decides nothing but whether this one service is connected, as its entry has it: a model names
// the service, and no host, program, file or value.
type Wishes struct {
	pfard Pfard

	mu    sync.Mutex
	able  bool // pfard can open pages
	of    map[string]*wish
	paces map[string]*rate.Limiter // by client; there are no more than are declared
}

// wish is the set-up of one client, as far as it has come.
type wish struct {
	service string
	end     context.CancelFunc // of following it: it goes on

	mu      sync.Mutex
	flow    control.Flow
	err     error
	over    bool
	told    bool          // how it ended
	link    string        // the last that there was
	shown   bool          // a person has been shown it, beside the model
	changed chan struct{} // closed when there is something newer
}

// New returns the wishes that pfard fulfils, once Able has said that it can.
func New(p Pfard) *Wishes {
	return &Wishes{pfard: p, of: map[string]*wish{}, paces: map[string]*rate.Limiter{}}
}

// Able takes whether pfard can open pages.
func (w *Wishes) Able(able bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.able = able
}

// Offered reports whether there is anything to wish for. Without Wishes there is nothing.
func (w *Wishes) Offered() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.able
}

// Answer is how far a set-up has come.
type Answer struct {
	control.Flow
	Shown bool // its link has been shown to a person already
}

// Ask returns the set-up of a service for a client, which it begins if there is none. It waits until there is a link,
// or what comes of it. How a set-up has ended is told once: the next call begins another one.
func (w *Wishes) Ask(ctx context.Context, client, service string) (Answer, error) {
	one := w.wish(client, service)
	for {
		one.mu.Lock()
		flow, err, over, shown, changed := one.flow, one.err, one.over, one.shown, one.changed
		one.told = over
		one.mu.Unlock()
		switch {
		case over && err != nil:
			return Answer{}, err
		case over, flow.State != "" && (flow.Page != "" || !waits(flow)):
			return Answer{flow, shown}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Answer{}, context.Cause(ctx)
		}
	}
}

// Show notes that a person has been shown a link.
func (w *Wishes) Show(client string) {
	w.mu.Lock()
	one := w.of[client]
	w.mu.Unlock()
	if one != nil {
		one.mu.Lock()
		one.shown = true
		one.mu.Unlock()
	}
}

// waits reports whether a set-up waits for a person, or is about to.
func waits(f control.Flow) bool {
	return f.State == control.FlowStart || f.State == control.AwaitingCredential || f.State == control.CredentialRefused
}

// wish is the set-up that is under way for a client, or a new one. One of another service ends with that.
func (w *Wishes) wish(client, service string) *wish {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.of[client]
	if before != nil && before.service == service && before.serves() {
		return before
	}
	pace := w.paces[client]
	if pace == nil {
		pace = rate.NewLimiter(rate.Every(every), atOnce)
		w.paces[client] = pace
	}
	if before != nil {
		before.end()
	}
	ctx, cancel := context.WithCancel(context.Background())
	one := &wish{service: service, end: cancel, changed: make(chan struct{})}
	w.of[client] = one
	go func() {
		defer cancel()
		one.finish(w.follow(ctx, one, client, pace))
	}()
	return one
}

// errOther is the error of a set-up that is not the wished one.
var errOther = errors.New("another service is being connected")

// follow joins the set-up that another gateway or another pfard has left under way, or else begins one, and follows it.
func (w *Wishes) follow(ctx context.Context, one *wish, client string, pace *rate.Limiter) error {
	err := w.pfard.SetUp(ctx, &control.SetUp{For: client}, func(f control.Flow) error {
		if f.Service != one.service {
			return errOther
		}
		return one.take(f)
	})
	if !errors.Is(err, control.ErrNoFlow) && !errors.Is(err, errOther) {
		return err
	}
	if !pace.Allow() {
		return ErrOften
	}
	return w.pfard.SetUp(ctx, &control.SetUp{Service: one.service, For: client, Page: true}, one.take)
}

// serves reports whether a wish is the answer to one more call: its set-up goes on, or nobody has heard yet how that
// ended.
func (o *wish) serves() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.over || o.err == nil && !o.told
}

func (o *wish) take(f control.Flow) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.flow = f; f.Page != "" && f.Page != o.link { // the page before it is gone
		o.link, o.shown = f.Page, false
	}
	o.over = f.State == control.FlowComplete || f.State == control.FlowFailed
	o.tell()
	return nil
}

func (o *wish) finish(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.over, o.err = true, err
		if err == nil {
			o.err = errors.New("the set-up has ended without a word")
		}
	}
	o.tell()
}

// tell is called with o.mu held.
func (o *wish) tell() {
	close(o.changed)
	o.changed = make(chan struct{})
}
