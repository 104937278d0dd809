// Package remote speaks MCP with a server elsewhere for the gateway: lines of JSON-RPC come and go on standard input
// and output as a program's would, and on the other side they are Streamable HTTP of either generation, or the HTTP+SSE
// pair of 2024-11-05.
//
// It does not use mcp-go's transports, because those decode and encode messages again, read without bounds, and drop
// answers that come on the session's own stream; the names and encodings of header fields are mcp-go's.
package remote

import (
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/headers"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/inbox"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/notes"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/wire"
	"github.com/pfar/pfar/policies/redact"
)

// Options say which server it is.
type Options struct {
	URL      *url.URL
	SSE      bool   // the HTTP+SSE pair is tried first
	Insecure bool   // http: may be
	Token    string // the bearer's; "" for none
	Variable string // that had it
	Others   Placed // secrets that stand elsewhere
	Login    string // the server's name in pfar login; "": nobody can sign in to it
	Limits   Limits

	Proxy *url.URL // by which addresses are reached; nil: as names are

	Roots *x509.CertPool // nil: those of the system

	// Ended is called after a connection breaks. It waits until it is clear why, and reports whether the server's program
	// has ended. If so, the adapter answers no request any more and ends. nil: pfar has not started the server.
	Ended func() bool

	// Dial connects; nil: to the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Placed are secrets by where they stand in each request.
type Placed struct {
	Header, Query map[string]string // values by the names of fields and of parameters
}

func (p Placed) all() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, of := range []map[string]string{p.Header, p.Query} {
			for place, value := range of {
				if !yield(place, value) {
					return
				}
			}
		}
	}
}

const usage = "usage: pfar-adapter remote [--sse] [--insecure] [--token-env NAME] [--header-env FIELD=NAME] " +
	"[--query-env PARAMETER=NAME] URL"

// pairs are the values of an option that may be there several times.
func pairs(to map[string]string) func(string) error {
	return func(s string) error {
		place, variable, ok := strings.Cut(s, "=")
		if !ok || place == "" || variable == "" {
			return errors.New(usage)
		}
		to[place] = variable
		return nil
	}
}

// Parse reads the arguments behind the verb.
func Parse(args []string, getenv func(string) string) (Options, error) {
	o := Options{Limits: DefaultLimits()}
	o.Login, _ = os.Hostname() // a sandbox has its server's name
	flags := flag.NewFlagSet("remote", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&o.SSE, "sse", false, "")
	flags.BoolVar(&o.Insecure, "insecure", false, "")
	flags.StringVar(&o.Variable, "token-env", "", "")
	o.Others = Placed{Header: map[string]string{}, Query: map[string]string{}}
	flags.Func("header-env", "", pairs(o.Others.Header))
	flags.Func("query-env", "", pairs(o.Others.Query))
	if err := flags.Parse(args); err != nil || flags.NArg() != 1 {
		return o, errors.Join(err, errors.New(usage))
	}
	var err error
	if o.URL, err = url.Parse(flags.Arg(0)); err != nil {
		return o, errors.New("the address is not a URL") // which may have a secret in it
	}
	if err := wire.CheckURL(o.URL, o.Insecure); err != nil {
		return o, err
	}
	if proxy := getenv("HTTP_PROXY"); proxy != "" {
		if o.Proxy, err = url.Parse(proxy); err != nil {
			return o, errors.New("HTTP_PROXY is not a URL")
		}
	}
	for _, of := range []map[string]string{o.Others.Header, o.Others.Query} {
		for place, variable := range of {
			if of[place], err = valueOf(getenv, variable); err != nil {
				return o, err
			}
		}
	}
	if o.Variable != "" {
		o.Token, err = valueOf(getenv, o.Variable)
	}
	return o, err
}

// valueOf is what a variable has.
func valueOf(getenv func(string) string, variable string) (string, error) {
	value := getenv(variable)
	if unfit := func(r rune) bool { return r < 0x21 || r > 0x7e }; value == "" || strings.ContainsFunc(value, unfit) {
		return "", fmt.Errorf("variable %q has no token in it", variable)
	}
	return value, nil
}

// Run speaks with the server until the gateway closes from, or ctx ends. An error means that what the gateway knows of
// the server is not so any more.
func Run(ctx context.Context, o Options, from io.Reader, to, log io.Writer) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	known := map[string][]byte{}
	if o.Token != "" {
		known[o.Variable] = []byte(o.Token)
	}
	for place, value := range o.Others.all() {
		known[place] = []byte(value)
	}
	secrets := redact.New(known)
	words := notes.New(log, secrets)
	c := &conversation{
		behind: make(chan struct{}, o.Limits.Behind), ended: o.Ended,
		sessions: &sessions{
			ctx: ctx, fail: fail, sse: o.SSE, turn: make(chan struct{}, 1),
			peer: &peer{
				client: wire.New(wire.Config{
					Token: o.Token, Header: o.Others.Header, Query: o.Others.Query, Proxy: o.Proxy,
					Limits: o.Limits.Wire, Roots: o.Roots, Dial: o.Dial,
				}),
				url: o.URL, login: o.Login, log: words, limits: o.Limits, tools: new(headers.Tools),
				inbox: inbox.New(to, func() { fail(errGateway) }, secrets, words, o.Limits.Inbox),
			},
		},
	}
	c.reach = &reach{least: o.Limits.Lost, after: o.Limits.Away, gone: c.lose}
	c.modern.Store(true)
	read := make(chan error, 1)
	go func() { read <- c.read(from) }()
	var err error
	select {
	case err = <-read:
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, errGateway) {
			err = cause
		}
	}
	c.finish()
	if err != nil { // it may quote the server
		err = errors.New(fault.Plain(secrets, err.Error()))
	}
	return err
}
