package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/passkey"
)

// Client asks pfard on the socket at Path.
type Client struct{ Path string }

// Do sends one request and returns its response. Errors wrap ErrNotRunning, ErrDenied, ErrNoServer and the like.
func (c Client) Do(ctx context.Context, request Request) (Response, error) {
	var last Response
	err := c.converse(ctx, request, func(r Response) error {
		last = r
		return errEnough
	})
	if err != nil {
		return Response{}, err
	}
	return last, nil
}

// Declare asks for what the owner's declaration of a server is to be. An answer that is not Done says what is wrong.
func (c Client) Declare(ctx context.Context, server string, text Text) (*Declared, error) {
	return c.declared(ctx, Request{Verb: Declare, Server: server, Text: &text})
}

// Undeclare takes the owner's declaration of a server away.
func (c Client) Undeclare(ctx context.Context, server string, text Text) (*Declared, error) {
	return c.declared(ctx, Request{Verb: Undeclare, Server: server, Text: &text})
}

func (c Client) declared(ctx context.Context, q Request) (*Declared, error) {
	r, err := c.Do(ctx, q)
	if err == nil && r.Declared == nil {
		err = lacks("a declaration")
	}
	return r.Declared, err
}

// List has pfard run a server, or with a text what it is to be, where it can do nothing, and returns what it offers.
func (c Client) List(ctx context.Context, server string, text []byte) (Listing, error) {
	q := Request{Verb: List, Server: server}
	if text != nil {
		q.Text = &Text{New: text}
	}
	r, err := c.Do(ctx, q)
	if err == nil && r.Listing == nil {
		err = lacks("a listing")
	}
	if err != nil {
		return Listing{}, err
	}
	return *r.Listing, nil
}

// Wish is a package that is to be installed, by its own name or by that of a declared server.
type Wish struct{ Package, Server string }

// Install has a package installed, and returns when it is there. It calls progress, unless that is nil, with each
// change. If the caller gives up, the installation goes on.
func (c Client) Install(ctx context.Context, w Wish, progress func(Installing)) (Installing, error) {
	last, err := c.install(ctx, w, progress)
	if err == nil && !last.Done {
		err = fmt.Errorf("%w: it ended while it installed %q", ErrNotRunning, last.Package)
	}
	return last, err
}

// Newest asks the registry which version of a package is the newest. The package that comes back has that version.
func (c Client) Newest(ctx context.Context, pkg string) (string, error) {
	last, err := c.install(ctx, Wish{Package: pkg}, nil)
	if err == nil && (last.Package == pkg || last.Package == "") {
		err = fmt.Errorf("%w: it ended before the newest version of %q was known", ErrNotRunning, pkg)
	}
	return last.Package, err
}

func (c Client) install(ctx context.Context, w Wish, progress func(Installing)) (last Installing, err error) {
	wanted := Request{Verb: Install, SettingUp: SettingUp{Package: w.Package}, Server: w.Server}
	err = c.converse(ctx, wanted, func(r Response) error {
		if r.Installing == nil {
			return lacks("a package")
		}
		if last = *r.Installing; progress != nil {
			progress(last)
		}
		return nil
	})
	return last, err
}

// SetUp begins a set-up, or with nil joins the one of this user, and calls changed with it as it is and after each
// change until it has ended. If the caller gives up, the set-up goes on. Its errors wrap ErrNoFlow if there is none to
// join.
func (c Client) SetUp(ctx context.Context, begin *SetUp, changed func(Flow) error) error {
	over := false
	err := c.converse(ctx, Request{Verb: Begin, SettingUp: SettingUp{SetUp: begin}}, func(r Response) error {
		if r.Flow == nil {
			return lacks("a set-up")
		}
		over = r.Flow.State == FlowComplete || r.Flow.State == FlowFailed
		return changed(*r.Flow)
	})
	if err == nil && !over {
		err = fmt.Errorf("%w: it ended before the set-up did", ErrNotRunning)
	}
	return err
}

// Console calls opened with a link to the console of this user, and returns when the link was used (entered) or is
// void. A pfard of an earlier version refuses it with ErrInvalid.
func (c Client) Console(ctx context.Context, opened func(link string) error) (entered bool, err error) {
	given := false
	err = c.converse(ctx, Request{Verb: Console, SettingUp: SettingUp{Await: true}}, func(r Response) error {
		if given {
			entered = r.Entered
			return errEnough
		}
		if given = r.Link != ""; !given {
			return lacks("a link")
		}
		return opened(r.Link)
	})
	return entered, err
}

// Supply answers a set-up that waits, and returns how it goes on. An error about the answer leaves it waiting.
func (c Client) Supply(ctx context.Context, a FlowAnswer, secret string) (Flow, error) {
	r, err := c.Do(ctx, Request{Verb: Supply, SettingUp: SettingUp{Answer: &a}, Secret: secret})
	if err == nil && r.Flow == nil {
		err = lacks("a set-up")
	}
	if err != nil {
		return Flow{}, err
	}
	return *r.Flow, nil
}

// Watch calls changed with the present report and with each new one, until it returns an error, which Watch returns,
// or until pfard closes the connection, which is io.EOF.
func (c Client) Watch(ctx context.Context, changed func(Report) error) error {
	return c.watch(ctx, Request{Verb: Watch}, changed)
}

// Await watches until done reports true. Its errors are those of done and of Watch.
func (c Client) Await(ctx context.Context, done func(Report) (bool, error)) error {
	over := false
	err := c.Watch(ctx, func(r Report) (err error) {
		if over, err = done(r); over && err == nil {
			err = io.EOF
		}
		return err
	})
	if over {
		return nil
	}
	return err
}

// Learn has the server run in learning mode until it returns, and calls changed as Watch does. Its errors are those of
// Watch, and of pfard when it ends the learning: the server has been stopped, disabled or removed, or learns already.
func (c Client) Learn(ctx context.Context, server string, changed func(Report) error) error {
	return c.watch(ctx, Request{Verb: Learn, Server: server}, changed)
}

// OnDemand calls changed with the servers on demand as they are and after each change, as Watch does.
func (c Client) OnDemand(ctx context.Context, changed func([]OnDemand) error) error {
	return c.follow(ctx, Request{Verb: Demand}, func(r Response) error { return changed(r.OnDemand) })
}

// Redaction calls changed with what secrets are recognised by (redact.Set) and after each change, as Watch does.
func (c Client) Redaction(ctx context.Context, changed func(set []byte) error) error {
	return c.follow(ctx, Request{Verb: Redaction}, func(r Response) error { return changed(r.Redaction) })
}

// Admitted is who may use pfar.
type Admitted struct {
	Clients   []access.Client
	Operators []passkey.Operator // at other machines
	Pages     bool               // a set-up can have a one-time page
}

// Clients calls changed with the declared clients and the operators, and after each change, as Watch does.
func (c Client) Clients(ctx context.Context, changed func(Admitted) error) error {
	return c.follow(ctx, Request{Verb: Clients}, func(r Response) error {
		return changed(Admitted{r.Clients, r.Operators, r.Pages})
	})
}

// Policy calls changed with what calls are decided by (gate.Policy and a list of gate.Sandbox, as JSON), once there is
// something, and after each change, as Watch does. A pfard of an earlier version tells of no sandboxes.
func (c Client) Policy(ctx context.Context, changed func(policy, sandboxes []byte) error) error {
	return c.follow(ctx, Request{Verb: Policy}, func(r Response) error { return changed(r.Policy, r.Sandboxes) })
}

// Stuck has pfard show why the gateway's records cannot be written, from the call of heard until ctx ends or pfard
// hangs up.
func (c Client) Stuck(ctx context.Context, why string, heard func()) error {
	return c.follow(ctx, Request{Verb: Stuck, Why: why}, func(Response) error { heard(); return nil })
}

func (c Client) watch(ctx context.Context, request Request, changed func(Report) error) error {
	return c.follow(ctx, request, func(r Response) error {
		if r.Status == nil {
			return nil
		}
		return changed(*r.Status)
	})
}

// follow is converse for what pfard answers until one of the two has enough: that it is pfard is io.EOF.
func (c Client) follow(ctx context.Context, request Request, each func(Response) error) error {
	err := c.converse(ctx, request, each)
	if err == nil {
		return io.EOF
	}
	return err
}

// lacks is the error of an answer without what was asked for.
func lacks(what string) error {
	return fmt.Errorf("pfard answered without %s: pfar and pfard may be of different versions", what)
}

// errEnough ends a conversation without error.
var errEnough = errors.New("enough")

func (c Client) converse(ctx context.Context, request Request, each func(Response) error) error {
	conn, err := Dial(ctx, c.Path)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	// pfard refuses a peer that may not ask before it reads; then the write fails, and the refusal is there to be read.
	asking := json.NewEncoder(conn).Encode(request)
	decoder := json.NewDecoder(conn)
	for answered := false; ; answered = true {
		var r Response
		err := decoder.Decode(&r)
		switch {
		case errors.Is(err, io.EOF) && answered:
			return nil
		case err != nil && asking != nil:
			return cause(ctx, fmt.Errorf("asking pfard at %q: %w", c.Path, asking))
		case err != nil:
			return cause(ctx, fmt.Errorf("reading pfard's answer: %w", err))
		case r.Error != "":
			return r.refused()
		}
		if err := each(r); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// cause prefers the reason why the context ended over the closed connection that it left behind.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Dial connects to a Unix socket of pfar's and refuses one that another user made: in /dev/shm anybody may squat a name
// and wait for secrets. root may serve everyone.
func Dial(ctx context.Context, path string) (*net.UnixConn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: nothing answers at %q", ErrNotRunning, path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: connecting to %q", ErrDenied, path)
	case err != nil:
		return nil, fmt.Errorf("connecting to %q: %w", path, err)
	}
	conn := c.(*net.UnixConn)
	peer, err := PeerOf(conn)
	if err == nil && peer.UID != 0 && peer.UID != os.Getuid() {
		err = fmt.Errorf("%w: the socket %q belongs to uid %d, not to you or root", ErrDenied, path, peer.UID)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
