package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// attachment is the conversation with pfard. Where pfard forked this process (local mode) its end was passed, and is used
// for the scope alone; in a unit it is made, and made anew when pfard is started again.
type attachment struct {
	path    string // of pfard's socket; "": the connection was passed
	digest  string // of the plan
	answers chan attach.Message
	refused func(words string) // called with the bridge's last refusal
	secrets func(set []byte)   // called with what secrets are recognised by
	over    chan error         // takes one: pfard does not take this process up again

	asking sync.Mutex // held from a question to its answer
	mu     sync.Mutex
	conn   *attach.Conn      // nil while there is none
	told   map[string]string // what the service manager was told last, by variable
	kept   []*os.File        // the sockets of a namespace that this process has made
}

const (
	attachWait = time.Minute      // for pfard, which may be starting, beside all the servers that are
	answerWait = 30 * time.Second // for an answer, for which it asks systemd
)

// passedAttachment takes over the connection that a local pfard has passed.
func passedAttachment(f *os.File, secrets func([]byte)) (*attachment, error) {
	c, err := attach.FromFile(f)
	if err != nil {
		return nil, err
	}
	a := &attachment{answers: make(chan attach.Message, 1), secrets: secrets, conn: c}
	go a.follow(c)
	return a, nil
}

// attachTo connects to pfard's socket, and returns the connection to the gateway that it hands out.
func attachTo(ctx context.Context, path, digest string, refused func(string), secrets func([]byte)) (*attachment, *os.File, error) {
	a := &attachment{path: path, digest: digest, answers: make(chan attach.Message, 1), refused: refused, secrets: secrets, over: make(chan error, 1), told: map[string]string{}}
	ctx, cancel := context.WithTimeout(ctx, attachWait)
	defer cancel()
	c, _, files, err := attach.Connect(ctx, path, attach.Hello{Digest: digest})
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

// follow takes what pfard says, and in a unit finds it again when it has gone.
func (a *attachment) follow(c *attach.Conn) {
	for {
		m, files, err := c.Receive()
		if err == nil && m.Redact && len(files) == 1 {
			a.redact(files[0])
			continue
		}
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
		c, _, files, err = attach.Connect(context.Background(), a.path, attach.Hello{Digest: a.digest, Again: true})
		if err != nil {
			a.over <- err
			return
		}
		attach.CloseAll(files)
		a.mu.Lock()
		a.conn = c
		told, kept := maps.Clone(a.told), a.kept
		a.mu.Unlock()
		_ = c.Send(attach.Message{Notify: told})
		if len(kept) > 0 {
			_ = c.Send(attach.Message{Sockets: true}, kept...)
		}
	}
}

// ended takes one when pfard does not want this process to go on, unless it has systemd end it.
func (a *attachment) ended() <-chan error {
	if a == nil {
		return nil
	}
	return a.over
}

// redact takes what secrets are recognised by from now on.
func (a *attachment) redact(f *os.File) {
	set, _ := units.ReadSealed(f, attach.MaxSet) // nil is no set, and is said to be none
	a.secrets(set)
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
		return errors.New("it is not there")
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
	if a == nil || a.path == "" {
		return // a local pfard is the service manager
	}
	a.mu.Lock()
	maps.Copy(a.told, vars)
	a.mu.Unlock()
	_ = a.send(attach.Message{Notify: vars})
}
