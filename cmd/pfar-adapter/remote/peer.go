package remote

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/headers"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/inbox"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/notes"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/wire"
	"github.com/pfar/pfar/units/jsonrpc"
)

// peer is the server as one address.
type peer struct {
	client *wire.Client
	url    *url.URL
	inbox  *inbox.Inbox
	log    *notes.Log
	limits Limits
	tools  *headers.Tools
	reach  *reach
	login  string // Options.Login
}

func (p *peer) do(ctx context.Context, r wire.Request) (*http.Response, error) {
	response, err := p.client.Do(ctx, r)
	p.reach.note(ctx, response, err)
	return response, err
}

// plain is the address without what may be a secret.
func (p *peer) plain() string {
	u := *p.url
	u.RawQuery = ""
	return u.Redacted()
}

const (
	typeJSON   = "application/json"
	typeStream = "text/event-stream"
)

// post is the request that carries a message.
func (p *peer) post(m message, s *session) wire.Request {
	header := http.Header{"Content-Type": {typeJSON}, "Accept": {typeJSON + ", " + typeStream}}
	to := p.url
	switch {
	case m.version != "":
		p.tools.Add(header, m.Method, m.Params, m.version)
	case s != nil:
		s.add(header)
		if s.isPair() {
			to = s.endpoint
		}
	}
	r := wire.Request{Method: http.MethodPost, URL: to, Header: header, Body: m.line}
	if m.Method == string(mcp.MethodSubscriptionsListen) {
		r.Idle = p.limits.Quiet
	}
	return r
}

// exchange sends a request, and hands on what the server says until it has answered.
func (p *peer) exchange(f *inbox.Flight, m message, s *session) error {
	response, err := p.do(f.Context(), p.post(m, s))
	if fault.Is(err, fault.NetworkError) && repeatable(m.Method) && f.Context().Err() == nil {
		response, err = p.do(f.Context(), p.post(m, s)) // the connection may have been an old one
	}
	if err != nil {
		return err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return p.refused(f, s, response)
	}
	if m.Method == string(mcp.MethodInitialize) && s != nil && !s.isPair() {
		if err := s.name(response.Header); err != nil {
			wire.Discard(response)
			return err
		}
	}
	if s != nil && s.isPair() {
		wire.Discard(response)
		return awaited(f, s.ctx.Done(), func() error { return context.Cause(s.ctx) })
	}
	return p.read(f, m, s, response)
}

// refused makes what it is of a response whose status is no success: an answer, the end of a session, or a fault.
func (p *peer) refused(f *inbox.Flight, s *session, response *http.Response) error {
	excerpt := wire.Excerpt(response)
	failure := fault.OfResponse(response.StatusCode, response.Header, excerpt, p.login, time.Now())
	if s != nil {
		if g := s.lost(failure); g != nil {
			return g
		}
	}
	switch failure.Class {
	case fault.Schema, fault.NotFound: // servers of 2026-07-28 answer with both
		if m, err := jsonrpc.Parse(excerpt); err == nil && m.Error != nil && bytes.Equal(m.ID, f.ID) {
			_ = p.inbox.Take(excerpt, f)
		}
	}
	if f.IsDone() {
		return nil
	}
	return failure
}

// read hands on what a response says.
func (p *peer) read(f *inbox.Flight, m message, s *session, response *http.Response) error {
	kind := mediaType(response)
	switch {
	case kind == typeStream:
		return p.follow(f, m, s, response)
	case kind == typeJSON:
		raw, err := wire.All(f.Context(), response, p.limits.Line)
		if err == nil {
			err = p.inbox.Take(raw, f)
		}
		if err == nil && !f.IsDone() {
			err = fault.New(fault.Schema, "the server's response does not answer the request")
		}
		return unlessDone(f, misread(err, response))
	case response.StatusCode == http.StatusAccepted || response.StatusCode == http.StatusNoContent:
		wire.Discard(response)
		if s != nil && s.listening.Load() { // it may mean to answer there
			return awaited(f, s.ctx.Done(), func() error { return context.Cause(s.ctx) })
		}
		return fault.New(fault.Schema, "the server takes the request, and says that it will not answer")
	}
	wire.Discard(response)
	// As it was sent: in other letters a secret in it would not be found.
	return misread(fault.New(fault.Schema, "the server's response is %.60q, neither %s nor %s",
		response.Header.Get("Content-Type"), typeJSON, typeStream), response)
}

// misread notes that a response came whose body does not fit the protocol.
func misread(err error, response *http.Response) error {
	if f := new(fault.Fault); errors.As(err, &f) && f.Class == fault.Schema {
		f.Status = response.StatusCode
	}
	return err
}

func mediaType(response *http.Response) string {
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		kind, _, _ = strings.Cut(response.Header.Get("Content-Type"), ";")
	}
	return strings.ToLower(strings.TrimSpace(kind))
}

// awaited waits for the answer to come on another stream.
func awaited(f *inbox.Flight, end <-chan struct{}, why func() error) error {
	select {
	case <-f.Done():
		return nil
	case <-end:
		return unlessDone(f, why())
	case <-f.Context().Done():
		return unlessDone(f, context.Cause(f.Context()))
	}
}

// unlessDone returns an error of a request that still waits.
func unlessDone(f *inbox.Flight, err error) error {
	if f.IsDone() {
		return nil
	}
	return err
}

// tell sends a message that needs no answer.
func (p *peer) tell(ctx context.Context, m message, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, p.limits.Notice)
	defer cancel()
	response, err := p.do(ctx, p.post(m, s))
	if err != nil {
		return err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		failure := fault.OfResponse(response.StatusCode, response.Header, wire.Excerpt(response), p.login, time.Now())
		return failure
	}
	wire.Discard(response)
	return nil
}

// get opens an event stream that goes on behind the event of an id, "" for one from now on.
func (p *peer) get(ctx context.Context, s *session, last string, idle time.Duration) (*http.Response, error) {
	header := http.Header{"Accept": {typeStream}}
	if s != nil {
		s.add(header)
	}
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	response, err := p.do(ctx, wire.Request{Method: http.MethodGet, URL: p.url, Header: header, Idle: idle})
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		failure := fault.OfResponse(response.StatusCode, response.Header, wire.Excerpt(response), p.login, time.Now())
		if s != nil {
			if g := s.lost(failure); g != nil {
				return nil, g
			}
		}
		return nil, failure
	}
	if kind := mediaType(response); kind != typeStream {
		wire.Discard(response)
		f := fault.New(fault.Schema, "the server answers GET with %.60q, not with %s", kind, typeStream)
		f.Status = http.StatusOK
		return nil, f
	}
	return response, nil
}

// leave tells the server that the session is over.
func (p *peer) leave(ctx context.Context, s *session) {
	if id, _ := s.names(); id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.limits.Leave)
	defer cancel()
	header := http.Header{}
	s.add(header)
	response, err := p.do(ctx, wire.Request{Method: http.MethodDelete, URL: p.url, Header: header})
	if err == nil { // 405 says that it does not want to be told
		wire.Discard(response)
	}
}
