package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/pfar/pfar/units/attach"
)

// attachment is the conversation with pfard. Where pfard forked this process (local mode) its end was passed, and is
// used for the scope alone; in a unit it is made, and made anew when pfard is started again.
type attachment struct {
	path    string // of pfard's socket; "": the connection was passed
	digest  string // of the plan
	answers chan attach.Message
	news    func(attach.Message) // called with what pfard says of the server while it runs
	found   chan found           // answers to search, which are asked for beside the others
	over    chan error           // takes one: pfard does not take this process up again
	wanted  chan struct{}        // takes one: a call wants the server, which is offline

	asking sync.Mutex // held from a question to its answer
	mu     sync.Mutex
	conn   *attach.Conn      // nil while there is none
	turned chan struct{}     // closed when there is another one, or none
	told   map[string]string // what the service manager was told last, by variable
	kept   []*os.File        // the sockets of a namespace that this process has made
}

// found is what pfard says may be logged.
type found struct {
	attach.Found
	files []*os.File
}

const (
	attachWait = time.Minute      // for pfard, which may be starting, beside all the servers that are
	answerWait = 30 * time.Second // for an answer, for which it asks systemd
)

func newAttachment(path, digest string) *attachment {
	return &attachment{
		path: path, digest: digest, answers: make(chan attach.Message, 1), found: make(chan found, 1),
		over: make(chan error, 1), wanted: make(chan struct{}, 1), turned: make(chan struct{}),
		told: map[string]string{},
	}
}

// passedAttachment takes over the connection that a local pfard has passed.
func passedAttachment(f *os.File) (*attachment, error) {
	c, err := attach.FromFile(f)
	if err != nil {
		return nil, err
	}
	a := newAttachment("", "")
	a.conn = c
	go a.follow(c)
	return a, nil
}

// attachTo connects to pfard's socket, and returns the connection to the gateway that pfard hands out; none for a
// program that runs once.
func attachTo(ctx context.Context, path, digest string, news func(attach.Message)) (*attachment, []*os.File, error) {
	a := newAttachment(path, digest)
	a.news = news
	ctx, cancel := context.WithTimeout(ctx, attachWait)
	defer cancel()
	c, _, files, err := attach.Connect(ctx, path, attach.Hello{Digest: digest})
	if err != nil {
		return nil, nil, err
	}
	if len(files) > 1 {
		attach.CloseAll(files)
		c.Close()
		return nil, nil, fmt.Errorf("attaching to pfard: it sent %d descriptors, want the gateway's connection", len(files))
	}
	a.conn = c
	go a.follow(c)
	return a, files, nil
}

// follow takes what pfard says, and in a unit finds it again when it has gone.
func (a *attachment) follow(c *attach.Conn) {
	for {
		m, files, err := c.Receive()
		if err == nil && m.Found != nil {
			a.answered(found{*m.Found, files})
			continue
		}
		attach.CloseAll(files)
		if err == nil {
			a.take(m)
			continue
		}
		c.Close()
		a.turn(nil)
		select {
		case a.answers <- attach.Message{Error: "pfard went away"}: // whoever waits for one
		default:
		}
		if a.path == "" {
			return
		}
		c, _, files, err = attach.Connect(context.Background(), a.path, attach.Hello{Digest: a.digest, Again: true})
		if err != nil {
			a.over <- err
			return
		}
		attach.CloseAll(files)
		if a.news != nil {
			a.news(attach.Message{Mistake: new(string)}) // this pfard says so again, unless it has been corrected since
		}
		a.turn(c)
		a.mu.Lock()
		told, kept := maps.Clone(a.told), a.kept
		a.mu.Unlock()
		_ = c.Send(attach.Message{Notify: told})
		if len(kept) > 0 {
			_ = c.Send(attach.Message{Sockets: true}, kept...)
		}
	}
}

// unit reports whether this process is a unit of systemd's.
func (a *attachment) unit() bool { return a.path != "" }

// ended takes one when pfard does not want this process to go on, unless it has systemd end it.
func (a *attachment) ended() <-chan error {
	return a.over
}

// turn goes on with another connection, or none.
func (a *attachment) turn(c *attach.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn = c
	close(a.turned)
	a.turned = make(chan struct{})
}

func (a *attachment) answered(f found) {
	select {
	case a.found <- f:
	default: // nobody asked
		attach.CloseAll(f.files)
	}
}

// search has lines searched for secrets, as package attach has it, and returns them as they may be logged. While pfard
// is away it waits. It is not called by two at once.
func (a *attachment) search(ctx context.Context, lines [][]byte, cut bool) ([]string, attach.Found, error) {
	file, err := attach.Sealed(lines)
	if err != nil {
		return nil, attach.Found{}, err
	}
	defer file.Close()
	for {
		a.mu.Lock()
		c, turned := a.conn, a.turned
		a.mu.Unlock()
		select {
		case f := <-a.found: // of one that has gone, whom the same was asked
			attach.CloseAll(f.files)
		default:
		}
		if c != nil && c.Send(attach.Message{Search: &attach.Search{Cut: cut}}, file) != nil {
			c.Close()
		}
		select {
		case f := <-a.found:
			text, err := f.Lines(f.files, len(lines))
			return text, f.Found, err
		case <-turned:
		case <-ctx.Done():
			return nil, attach.Found{}, ctx.Err()
		}
	}
}

func (a *attachment) take(m attach.Message) {
	switch {
	case a.news != nil && (m.Refusal != "" || m.Mistake != nil || m.Label != nil):
		a.news(m)
	case m.Try:
		select {
		case a.wanted <- struct{}{}:
		default:
		}
	case m.Placed != nil, m.End != nil:
		select {
		case a.answers <- m:
		default: // nobody asked
		}
	}
}

// ask sends a question and waits for the answer. Without one the error wraps attach.ErrLater.
func (a *attachment) ask(question attach.Message) (attach.Message, error) {
	a.asking.Lock()
	defer a.asking.Unlock()
	select {
	case <-a.answers: // of a question that was given up
	default:
	}
	if err := a.send(question); err != nil {
		return attach.Message{}, fmt.Errorf("%w: %w", attach.ErrLater, err)
	}
	select {
	case m := <-a.answers:
		if m.Error != "" {
			return m, fmt.Errorf("%w: %s", attach.ErrLater, m.Error)
		}
		return m, nil
	case <-time.After(answerWait):
		return attach.Message{}, fmt.Errorf("%w: no answer within %s", attach.ErrLater, answerWait)
	}
}

func (a *attachment) send(m attach.Message, files ...*os.File) error {
	a.mu.Lock()
	c := a.conn
	a.mu.Unlock()
	if c == nil {
		return errors.New("pfard is not there")
	}
	if err := c.Send(m, files...); err != nil { // it has gone, and follow has not seen that yet
		return fmt.Errorf("%w: %w", attach.ErrLater, err)
	}
	return nil
}

// keep hands the sockets of the server's namespace to pfard, and to the next one when this has gone.
func (a *attachment) keep(sockets []*os.File) {
	a.mu.Lock()
	a.kept = sockets
	a.mu.Unlock()
	_ = a.send(attach.Message{Sockets: true}, sockets...) // if it has gone already, follow sends them
}

// tell passes on what the service manager was told. It is lost while pfard is away, and said again when it is back.
func (a *attachment) tell(vars map[string]string) {
	if a.path == "" {
		return // a local pfard is the service manager
	}
	a.mu.Lock()
	maps.Copy(a.told, vars)
	a.mu.Unlock()
	_ = a.send(attach.Message{Notify: vars})
}
