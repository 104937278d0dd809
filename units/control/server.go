package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pfar/pfar/units"
)

const (
	maxRequest     = 16 << 20         // bytes; a bundle of secrets is the largest thing in one
	maxGuest       = 4 << 10          // bytes of a guest's, who brings no secrets
	maxTalk        = 512 << 10        // bytes of a chat's: an event of Matrix has 64 KiB, and JSON may escape them
	requestTimeout = 10 * time.Second // a peer that connects and says nothing holds nothing
	writeTimeout   = 10 * time.Second // nor does one that does not read
)

// Answer carries out one request of a peer that may ask. It calls send for each response; an error becomes the last
// response, and its Code comes from the errors of this package that it wraps. The context ends when the peer hangs up.
type Answer func(ctx context.Context, peer Peer, request Request, send func(Response) error) error

// Guest is a user beside root and our own who may ask for some verbs, and for nothing else.
type Guest struct {
	UID   int
	Verbs []Verb
}

// maxGuests is how many connections of guests are served at once, all guests together: whoever has taken one over must
// not take this process's descriptors as well.
const maxGuests = 1024

// Serve answers requests on the listener until the context ends, then closes it and waits for the answers under way.
// Only uid 0 and the uid of this process are listened to, and the guests.
func Serve(ctx context.Context, listener *net.UnixListener, answer Answer, guests ...Guest) error {
	s := newServer(func(p Peer) bool { return p.UID == 0 || p.UID == os.Getuid() }, guests, answer)
	return s.serve(ctx, listener)
}

// looks are what changes nothing that is declared and tells no secret of the vault. A console acts as its peer.
func looks() []Verb { return []Verb{Status, Watch, Secrets, Console, Logout} }

// ServeLooks is Serve for a socket whose mode says who may connect. They may look and open a
// console, and ask for nothing else.
func ServeLooks(ctx context.Context, listener *net.UnixListener, answer Answer) error {
	s := newServer(func(Peer) bool { return false }, nil, answer)
	s.others = looks()
	return s.serve(ctx, listener)
}

// server is what answers on a socket.
// ServeChat answers on the socket of one chat, whose process is a user's: that user may begin set-ups and bring secrets
// for them, and nobody else anything. It returns as Serve does.
func ServeChat(ctx context.Context, listener *net.UnixListener, uid int, answer Answer) error {
	s := newServer(func(Peer) bool { return false }, []Guest{{uid, []Verb{Begin, Supply}}}, answer)
	s.limit = maxTalk
	return s.serve(ctx, listener)
}

type server struct {
	owner  func(Peer) bool // who may ask for everything
	guests []Guest
	others []Verb        // what all others may ask for
	slots  chan struct{} // holds one for each connection of a guest
	limit  int64         // bytes of a request of all but owners
	answer Answer
}

func newServer(owner func(Peer) bool, guests []Guest, answer Answer) *server {
	return &server{
		owner: owner, guests: guests, slots: make(chan struct{}, maxGuests), limit: maxGuest, answer: answer,
	}
}

func (s *server) serve(ctx context.Context, listener *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	var answers sync.WaitGroup
	defer answers.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		c, err := units.Accept(ctx, listener.AcceptUnix, func(error) {})
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting on the control socket: %w", err)
		}
		answers.Go(func() {
			defer c.Close()
			s.converse(ctx, c)
		})
	}
}

func (s *server) converse(ctx context.Context, c *net.UnixConn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A read or write that waits must not outlive the context.
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Now()) })()
	encoder := json.NewEncoder(c)
	send := func(r Response) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if len(r.Files) > 0 {
			return sendFiles(c, r)
		}
		return encoder.Encode(r)
	}
	refuse := func(err error) { send(Response{Refusing: refusing(err)}) }
	peer, err := PeerOf(c)
	if err != nil {
		refuse(fmt.Errorf("%w: %w", ErrDenied, err))
		return
	}
	as, err := s.admit(peer)
	if err != nil {
		refuse(err)
		return
	}
	defer as.leave()
	c.SetReadDeadline(time.Now().Add(requestTimeout))
	request, err := readRequest(c, as.limit)
	if err != nil {
		refuse(err)
		return
	}
	if !slices.Contains(as.verbs, request.Verb) {
		refuse(fmt.Errorf("%w: uid %d may not ask for %q", ErrDenied, peer.UID, request.Verb))
		return
	}
	c.SetReadDeadline(time.Time{})
	go func() { // ends at the latest with the connection
		io.Copy(io.Discard, c)
		cancel()
	}()
	if err := s.answer(ctx, peer, request, send); err != nil {
		refuse(err)
	}
}

// admission is what a peer may do on one connection.
type admission struct {
	verbs []Verb
	limit int64  // bytes of its request
	leave func() // to be called when it has been answered
}

func (s *server) admit(p Peer) (admission, error) {
	if s.owner(p) {
		return admission{verbs, maxRequest, func() {}}, nil
	}
	i := slices.IndexFunc(s.guests, func(g Guest) bool { return g.UID == p.UID })
	may := s.others
	if i >= 0 {
		may = s.guests[i].Verbs
	}
	if len(may) == 0 {
		return admission{}, fmt.Errorf("%w: uid %d may not control this pfard", ErrDenied, p.UID)
	}
	select {
	case s.slots <- struct{}{}:
		return admission{may, s.limit, func() { <-s.slots }}, nil
	default:
		return admission{}, fmt.Errorf("%w: %d connections are being answered; ask again when some are", ErrBusy, maxGuests)
	}
}

func readRequest(c io.Reader, limit int64) (Request, error) {
	decoder := json.NewDecoder(io.LimitReader(c, limit))
	decoder.DisallowUnknownFields()
	var r Request
	if err := decoder.Decode(&r); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			// The decoder's own words may quote the request, and so a secret.
			return Request{}, fmt.Errorf("%w: not one JSON object of at most %d bytes", ErrInvalid, limit)
		}
		return Request{}, fmt.Errorf("%w: unknown member, wrong type, or nothing sent for %s", ErrInvalid, requestTimeout)
	}
	if !slices.Contains(verbs, r.Verb) {
		return Request{}, fmt.Errorf("%w: unknown verb %q", ErrInvalid, r.Verb)
	}
	return r, nil
}
