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

// attachment is the conversation with pfard. Where pfard forked this process (local mode) its end was passed, and is used
// for the scope alone; in a unit it is made, and made anew when pfard is started again.
type attachment struct {
	path    string // of pfard's socket; "": the connection was passed
	digest  string // of the plan
	answers chan attach.Message
	refused func(words string) // called with the bridge's last refusal

	asking sync.Mutex // held from a question to its answer
	mu     sync.Mutex
	conn   *attach.Conn      // nil while there is none
	told   map[string]string // what the service manager was told last, by variable
}

const (
	attachWait = 10 * time.Second // for pfard, which may be starting; and for an answer, for which it asks systemd
	maxPause   = 2 * time.Second  // between two tries to reach it again
)

// passedAttachment takes over the connection that a local pfard has passed.
func passedAttachment(f *os.File) (*attachment, error) {
	c, err := attach.FromFile(f)
	if err != nil {
		return nil, err
	}
	a := &attachment{answers: make(chan attach.Message, 1), conn: c}
	go a.follow(c)
	return a, nil
}

// errLater is the error of a refusal that may not come again.
var errLater = errors.New("pfard refuses for now")

// attachTo connects to pfard's socket, and returns the connection to the gateway that it hands out.
func attachTo(ctx context.Context, path, digest string, refused func(string)) (*attachment, *os.File, error) {
	a := &attachment{path: path, digest: digest, answers: make(chan attach.Message, 1), refused: refused, told: map[string]string{}}
	ctx, cancel := context.WithTimeout(ctx, attachWait)
	defer cancel()
	c, files, err := a.dial(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	if len(files) != 1 {
		attach.CloseAll(files)
		c.Close()
		return nil, nil, fmt.Errorf("attaching to pfard: it sent %d descriptors, want the gateway's connection", len(files))
	}
	a.conn = c
	go a.follow(c)
	return a, files[0], nil
}

// dial tries until pfard answers or ctx ends.
func (a *attachment) dial(ctx context.Context, again bool) (*attach.Conn, []*os.File, error) {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, maxPause) {
		c, files, err := a.hello(again)
		var refusal *refusal
		if err == nil || errors.As(err, &refusal) {
			return c, files, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("attaching to pfard at %q: %w", a.path, err)
		}
	}
}

// refusal is pfard's word that this process is not to run.
type refusal struct {
	words string
	later bool
}

func (r *refusal) Error() string { return r.words }
func (r *refusal) Unwrap() error {
	if r.later {
		return errLater
	}
	return nil
}

func (a *attachment) hello(again bool) (*attach.Conn, []*os.File, error) {
	c, err := attach.Dial(a.path)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Send(attach.Message{Hello: &attach.Hello{Digest: a.digest, Again: again}}); err != nil {
		c.Close()
		return nil, nil, err
	}
	stop := time.AfterFunc(attachWait, func() { c.Close() })
	m, files, err := c.Receive()
	stop.Stop()
	switch {
	case err != nil:
	case m.Error != "":
		err = &refusal{m.Error, m.Later}
	case m.Welcome == nil:
		err = errors.New("its first message is no welcome")
	default:
		return c, files, nil
	}
	attach.CloseAll(files)
	c.Close()
	return nil, nil, err
}

// follow takes what pfard says, and in a unit finds it again when it has gone.
func (a *attachment) follow(c *attach.Conn) {
	for {
		m, files, err := c.Receive()
		attach.CloseAll(files)
		if err == nil {
			a.take(m)
			continue
		}
		c.Close()
		a.mu.Lock()
		a.conn = nil
		a.mu.Unlock()
		select {
		case a.answers <- attach.Message{Error: "pfard went away"}: // whoever waits for one
		default:
		}
		if a.path == "" {
			return
		}
		c, files, err = a.dial(context.Background(), true)
		if err != nil { // it does not know this process any more, and will have systemd end it
			return
		}
		attach.CloseAll(files)
		a.mu.Lock()
		a.conn = c
		told := maps.Clone(a.told)
		a.mu.Unlock()
		_ = c.Send(attach.Message{Notify: told})
	}
}

func (a *attachment) take(m attach.Message) {
	switch {
	case m.Refusal != "" && a.refused != nil:
		a.refused(m.Refusal)
	case m.Placed != nil, m.End != nil:
		select {
		case a.answers <- m:
		default: // nobody asked
		}
	}
}

// ask sends a question, with files, and waits for the answer.
func (a *attachment) ask(question attach.Message) (attach.Message, error) {
	a.asking.Lock()
	defer a.asking.Unlock()
	select {
	case <-a.answers: // of a question that was given up
	default:
	}
	if err := a.send(question); err != nil {
		return attach.Message{}, err
	}
	select {
	case m := <-a.answers:
		if m.Error != "" {
			return m, errors.New(m.Error)
		}
		return m, nil
	case <-time.After(attachWait):
		return attach.Message{}, fmt.Errorf("no answer within %s", attachWait)
	}
}

func (a *attachment) send(m attach.Message, files ...*os.File) error {
	a.mu.Lock()
	c := a.conn
	a.mu.Unlock()
	if c == nil {
		return errors.New("pfard is not there")
	}
	return c.Send(m, files...)
}

// tell passes on what the service manager was told. It is lost while pfard is away, and said again when it is back.
func (a *attachment) tell(vars map[string]string) {
	if a == nil || a.path == "" {
		return // a local pfard is the service manager
	}
	a.mu.Lock()
	maps.Copy(a.told, vars)
	a.mu.Unlock()
	_ = a.send(attach.Message{Notify: vars})
}
