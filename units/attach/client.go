package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pfar/pfar/units"
)

const (
	firstPause    = 20 * time.Millisecond // between two tries to reach pfard
	maxPause      = 2 * time.Second
	joinPatience  = time.Minute      // for pfard, which may be starting
	helloPatience = 30 * time.Second // for the answer to Hello, for which pfard asks systemd and has the kernel load modules
)

// Refusal is pfard's word that this process is not to run. It wraps ErrLater if that may be otherwise later.
type Refusal struct {
	Words string
	Later bool
}

// ErrLater is the error of what may go well another time: a refusal for now, and a pfard that does not answer.
var ErrLater = errors.New("pfard cannot be had for now")

func (r *Refusal) Error() string { return r.Words }
func (r *Refusal) Unwrap() error {
	if r.Later {
		return ErrLater
	}
	return nil
}

// Connect says hello to the pfard at path, which may be starting: it tries until pfard answers or ctx ends. The files
// that come with the welcome are the caller's to close. Of the errors, *Refusal alone may not wrap ErrLater.
func Connect(ctx context.Context, path string, hello Hello) (*Conn, Welcome, []*os.File, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		c, w, files, err := greet(ctx, path, hello)
		var refusal *Refusal
		if err == nil || errors.As(err, &refusal) {
			return c, w, files, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, Welcome{}, nil, fmt.Errorf("%w: attaching at %q: %w", ErrLater, path, err)
		}
	}
}

// Join says hello to pfard over its socket at path, as Connect does, or without one over the connection that a local
// pfard has passed to this process under a name.
func Join(ctx context.Context, path, passed string, hello Hello) (*Conn, []*os.File, error) {
	if path != "" {
		ctx, cancel := context.WithTimeout(ctx, joinPatience)
		defer cancel()
		c, _, files, err := Connect(ctx, path, hello)
		return c, files, err
	}
	all, err := units.Descriptors()
	if err != nil {
		return nil, nil, err
	}
	if n := len(all[passed]); n != 1 {
		return nil, nil, fmt.Errorf("taking over the connection to pfard: got %d named %q, want one", n, passed)
	}
	c, err := FromFile(all[passed][0])
	if err != nil {
		return nil, nil, err
	}
	var m Message
	var files []*os.File
	if err = c.Send(Message{Hello: &hello}); err == nil {
		m, files, err = c.Receive()
	}
	if err == nil && m.Welcome == nil {
		err = errors.New("pfard did not begin with a welcome")
	}
	if err != nil {
		CloseAll(files)
		c.Close()
		return nil, nil, err
	}
	return c, files, nil
}

func greet(ctx context.Context, path string, hello Hello) (*Conn, Welcome, []*os.File, error) {
	c, err := Dial(path)
	if err != nil {
		return nil, Welcome{}, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, helloPatience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	var m Message
	var files []*os.File
	if err = c.Send(Message{Hello: &hello}); err == nil {
		m, files, err = c.Receive()
	}
	switch {
	case !stop():
		err = fmt.Errorf("pfard gives no answer: %w", context.Cause(ctx))
	case err != nil:
	case m.Error != "":
		err = &Refusal{m.Error, m.Later}
	case m.Welcome == nil:
		err = errors.New("pfard's first message is not a welcome")
	default:
		return c, *m.Welcome, files, nil
	}
	CloseAll(files)
	c.Close()
	return nil, Welcome{}, nil, err
}
