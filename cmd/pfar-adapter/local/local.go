// Package local speaks MCP for the gateway with a server on the same machine: one that it starts itself, in the sandbox
// that both run in, or one that runs on the host without pfar, at a socket or a pair of FIFOs.
package local

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
)

// Limits bound how long anything takes. The gateway waits for a handshake a little longer than Listen.
type Limits struct {
	Listen time.Duration // until the server listens
	First  time.Duration // between the first two looks whether it does
	Last   time.Duration // between later ones
	Dying  time.Duration // for the server to end once its connections are broken
	Grace  time.Duration // for the server to end once it is told to
}

// DefaultLimits are those of servers that people write.
func DefaultLimits() Limits {
	return Limits{
		Listen: 25 * time.Second, First: 5 * time.Millisecond, Last: 250 * time.Millisecond, Dying: 2 * time.Second,
		Grace: 3 * time.Second,
	}
}

// Adapter is what a server is spoken to with.
type Adapter struct {
	In     *os.File // the gateway's lines
	Out    io.Writer
	Log    *os.File // takes what a server writes that is started
	Getenv func(string) string
	Limits Limits
	After  func(time.Duration) <-chan time.Time
}

// New returns one on standard input, output and error.
func New() Adapter {
	return Adapter{
		In: os.Stdin, Out: os.Stdout, Log: os.Stderr, Getenv: os.Getenv, Limits: DefaultLimits(), After: time.After,
	}
}

var errGateway = errors.New("the gateway has closed standard input")

// split parts the arguments of a verb, which are all behind its flags: where the server is, and its command after "--".
func split(f *flag.FlagSet, args []string, usage string) (where string, command []string, err error) {
	f.SetOutput(io.Discard)
	err = f.Parse(args)
	rest := f.Args()
	if len(rest) > 0 {
		where, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 && rest[0] == "--" && len(rest) > 1 {
		rest, command = nil, rest[1:]
	}
	if err != nil || where == "" || len(rest) > 0 {
		return "", nil, errors.Join(err, errors.New("usage: pfar-adapter "+usage))
	}
	return where, command, nil
}

// UDS speaks with a server at a Unix socket.
func (a Adapter) UDS(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("uds", flag.ContinueOnError)
	url := f.String("url", "http://localhost/mcp", "")
	token := f.String("token-env", "", "")
	socket, command, err := split(f, args, "uds [--url URL] [--token-env NAME] SOCKET [-- COMMAND [ARGUMENT...]]")
	if err != nil {
		return err
	}
	o, err := a.options(*url, *token)
	if err != nil {
		return err
	}
	if command != nil {
		if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
			return fmt.Errorf("making the directory of the socket: %w", err)
		}
	}
	return a.with(ctx, command, func(ctx context.Context, ended func() bool) error {
		o.Ended = ended
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
		if err := a.await(ctx, dial, socket); err != nil {
			return err
		}
		ctx, fail := context.WithCancelCause(ctx)
		defer fail(nil)
		if command == nil {
			go a.watch(ctx, dial, fail)
		}
		o.Dial = dial
		if older(ctx, o) {
			mcp := newSeed(dial)
			defer mcp.close()
			o.Dial = mcp.dial
		}
		return a.speak(ctx, o)
	})
}

// Port speaks with a server that it starts and that listens at a port of its own loopback.
func (a Adapter) Port(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("port", flag.ContinueOnError)
	sse := f.Bool("sse", false, "")
	url, command, err := split(f, args, "port [--sse] URL -- COMMAND [ARGUMENT...]")
	if err != nil {
		return err
	}
	o, err := a.options(url, "")
	if err != nil {
		return err
	}
	o.SSE = *sse
	return a.with(ctx, command, func(ctx context.Context, ended func() bool) error {
		o.Ended = ended
		host, port := o.URL.Hostname(), o.URL.Port()
		if port == "" {
			port = "80"
		}
		o.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(host, port))
		}
		if err := a.await(ctx, o.Dial, o.URL.Host); err != nil {
			return err
		}
		return a.speak(ctx, o)
	})
}

// options says how an address is spoken to. Nobody is in between who could read: it needs no encryption.
func (a Adapter) options(url, token string) (remote.Options, error) {
	args := []string{"--insecure"}
	if token != "" {
		args = append(args, "--token-env", token)
	}
	o, err := remote.Parse(append(args, url), a.Getenv)
	o.Proxy, o.Login = nil, ""
	return o, err
}

// speak speaks HTTP until the gateway ends it or ctx does.
func (a Adapter) speak(ctx context.Context, o remote.Options) error {
	if err := remote.Run(ctx, o, a.In, a.Out, a.Log); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

type dial func(ctx context.Context, network, address string) (net.Conn, error)

// await waits until somebody listens: no event tells of that.
func (a Adapter) await(ctx context.Context, to dial, where string) error {
	late := a.After(a.Limits.Listen)
	for wait := a.Limits.First; ; wait = min(2*wait, a.Limits.Last) {
		c, err := to(ctx, "tcp", "")
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			return fmt.Errorf("the server does not listen at %q within %s: %s", where, a.Limits.Listen, fault.Cause(err))
		case <-a.After(wait):
		}
	}
}

// watch ends the conversation when nobody listens at a socket any more: its server has ended, and the next one has
// another socket. It holds a connection that says so at once.
func (a Adapter) watch(ctx context.Context, to dial, fail func(error)) {
	for {
		c, err := to(ctx, "", "")
		switch {
		case ctx.Err() != nil:
		case err != nil && !errors.Is(err, unix.EAGAIN): // too many wait
			fail(&fault.Fault{Class: fault.NetworkError, Detail: "the server has gone", Cause: fault.Cause(err)})
			return
		case err == nil:
			stop := context.AfterFunc(ctx, func() { c.Close() })
			_, _ = c.Read(make([]byte, 1)) // it has nothing to say to a client that asks nothing
			stop()
			c.Close()
		}
		select {
		case <-ctx.Done():
			return
		case <-a.After(a.Limits.Last): // or it may close each connection as soon as it is there
		}
	}
}

// hungUp closes the channel once the other end of a pipe is closed, read to the end or not.
func hungUp(f *os.File) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		fds := []unix.PollFd{{Fd: int32(f.Fd())}}
		for {
			if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			if fds[0].Revents != 0 {
				close(over)
				return
			}
		}
	}()
	return over
}
