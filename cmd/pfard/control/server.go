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
)

const (
	maxRequest     = 1 << 20          // bytes; a secret is the largest thing in one
	requestTimeout = 10 * time.Second // a peer that connects and says nothing holds nothing
	writeTimeout   = 10 * time.Second // nor does one that does not read
)

// Answer carries out one request of a peer that may ask. It calls send for each response; an error becomes the last
// response, and its Code comes from the errors of this package that it wraps. The context ends when the peer hangs up.
type Answer func(ctx context.Context, peer Peer, request Request, send func(Response) error) error

// Serve answers requests on the listener until the context ends, then closes it and waits for the answers under way.
// Only uid 0 and the uid of this process are listened to.
func Serve(ctx context.Context, listener *net.UnixListener, answer Answer) error {
	return serve(ctx, listener, func(p Peer) bool { return p.UID == 0 || p.UID == os.Getuid() }, answer)
}

func serve(ctx context.Context, listener *net.UnixListener, allowed func(Peer) bool, answer Answer) error {
	ctx, cancel := context.WithCancel(ctx)
	var answers sync.WaitGroup
	defer answers.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		c, err := listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accepting on the control socket: %w", err)
		}
		answers.Go(func() {
			defer c.Close()
			serveConn(ctx, c, allowed, answer)
		})
	}
}

func serveConn(ctx context.Context, c *net.UnixConn, allowed func(Peer) bool, answer Answer) {
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
		return encoder.Encode(r)
	}
	refuse := func(err error) { send(Response{Error: err.Error(), Code: codeOf(err)}) }
	peer, err := PeerOf(c)
	if err != nil || !allowed(peer) {
		refuse(fmt.Errorf("%w: uid %d may not control this pfard", ErrDenied, peer.UID))
		return
	}
	c.SetReadDeadline(time.Now().Add(requestTimeout))
	request, err := readRequest(c)
	if err != nil {
		refuse(err)
		return
	}
	c.SetReadDeadline(time.Time{})
	go func() { // ends at the latest with the connection
		io.Copy(io.Discard, c)
		cancel()
	}()
	if err := answer(ctx, peer, request, send); err != nil {
		refuse(err)
	}
}

func readRequest(c io.Reader) (Request, error) {
	decoder := json.NewDecoder(io.LimitReader(c, maxRequest))
	decoder.DisallowUnknownFields()
	var r Request
	if err := decoder.Decode(&r); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			// The decoder's own words may quote the request, and so a secret.
			return Request{}, fmt.Errorf("%w: not one JSON object of at most %d bytes", ErrInvalid, maxRequest)
		}
		return Request{}, fmt.Errorf("%w: unknown member, wrong type, or nothing sent for %s", ErrInvalid, requestTimeout)
	}
	if !slices.Contains([]Verb{Status, Watch, Plan, Start, Stop, Restart, Learn, Store, Secrets, Remove}, r.Verb) {
		return Request{}, fmt.Errorf("%w: unknown verb %q", ErrInvalid, r.Verb)
	}
	return r, nil
}
