package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/units"
)

// server is a server process that pfar-adapter has started. mcp-go's transport frames the messages and matches answers
// to requests. It returns results unchanged.
type server struct {
	*transport.Stdio
	limits limits
	cmd    *exec.Cmd
	pipes  []*os.File
	wrote  *bounded
	exited chan struct{} // closed when cmd has exited
	why    error         // the error of cmd.Wait, once exited is closed
	ids    int64

	meta         map[string]any // _meta of each request to a server of protocol 2026-07-28
	capabilities map[string]json.RawMessage
}

// bounded is a Reader that ends after a number of bytes.
type bounded struct {
	io.Reader
	left   int
	beyond chan struct{} // closed when a read finds left at 0
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		select {
		case <-b.beyond:
		default:
			close(b.beyond)
		}
		return 0, io.EOF
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func start(command []string, limits limits, stderr *os.File) (*server, error) {
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		stdin.Close()
		in.Close()
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	err = cmd.Start()
	stdin.Close()
	stdout.Close()
	s := &server{limits: limits, cmd: cmd, pipes: []*os.File{in, out}, exited: make(chan struct{})}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("the server could not be started: %w", err)
	}
	go func() {
		s.why = cmd.Wait()
		close(s.exited)
	}()
	s.wrote = &bounded{out, limits.bytes, make(chan struct{})}
	s.Stdio = transport.NewIO(s.wrote, in, nil)
	if err := s.Start(context.Background()); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func (s *server) close() {
	for _, f := range s.pipes {
		f.Close()
	}
}

// end kills the server. No call is under way that it would have to finish.
func (s *server) end() {
	s.close()
	_ = s.cmd.Process.Kill()
	<-s.exited
	_ = s.Stdio.Close()
}

// ended reports whether the server has exited, or has written more than its limit.
func (s *server) ended() bool {
	select {
	case <-s.exited:
	case <-s.wrote.beyond:
	default:
		return false
	}
	return true
}

// refusal is a JSON-RPC error that the server has answered.
type refusal struct {
	method string
	*mcp.JSONRPCErrorDetails
}

func (r refusal) Error() string {
	return fmt.Sprintf("the server answered %s with error %d: %.200s", r.method, r.Code, r.Message)
}

// call sends a request, and returns the members of its result.
func (s *server) call(ctx context.Context, method string, params map[string]any) (map[string]json.RawMessage, error) {
	if s.meta != nil {
		params["_meta"] = s.meta
	}
	s.ids++
	request := transport.JSONRPCRequest{JSONRPC: mcp.JSONRPC_VERSION, ID: mcp.NewRequestId(s.ids), Method: method}
	if request.Params = params; len(params) == 0 {
		request.Params = nil
	}
	r, err := s.SendRequest(ctx, request)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the server did not answer %s: %w", method, context.Cause(ctx))
	case err != nil:
		return nil, s.gone(method)
	case r.Error != nil:
		return nil, refusal{method, r.Error}
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(r.Result, &members) != nil || members == nil {
		return nil, fmt.Errorf("the server answered %s with a result that is not an object", method)
	}
	return members, nil
}

// gone returns why the server sends no more answers.
func (s *server) gone(method string) error {
	select {
	case <-s.wrote.beyond:
		return fmt.Errorf("the server wrote more than %d bytes before it had answered %s", s.limits.bytes, method)
	case <-s.exited:
	case <-time.After(time.Second): // a server that exits closes its stdout first
		return fmt.Errorf("the server closed its stdout before it had answered %s", method)
	}
	if s.why == nil {
		return fmt.Errorf("the server ended before it had answered %s", method)
	}
	return fmt.Errorf("the server ended before it had answered %s: %w", method, s.why)
}

var (
	errProbe  = errors.New("the server ended when it was asked server/discover")
	errSilent = errors.New("no answer came in time")
)

// agree finds out which generation of the protocol the server speaks. Like the gateway, it asks for the newer one
// first, and takes any other answer to mean the older one.
func (s *server) agree(ctx context.Context, abilities []byte, probe bool) error {
	if !probe {
		return s.initialize(ctx, abilities)
	}
	soon, cancel := context.WithTimeoutCause(ctx, s.limits.probe, errSilent)
	err := s.discover(soon, abilities)
	cancel()
	switch {
	case err == nil:
		return nil
	case s.ended():
		return fmt.Errorf("%w: %w", errProbe, err)
	}
	older := s.initialize(ctx, abilities)
	if older != nil && errors.Is(err, errSilent) && s.discover(ctx, abilities) == nil { // the server answered late
		return nil
	}
	return older
}

// self is the name and version that pfar sends as a client.
func self() map[string]string { return map[string]string{"name": "pfar", "version": units.Version()} }

func (s *server) discover(ctx context.Context, abilities []byte) error {
	s.meta = map[string]any{
		mcp.MetaKeyProtocolVersion: mcp.ProtocolVersion20260728, mcp.MetaKeyClientInfo: self(),
		mcp.MetaKeyClientCapabilities: json.RawMessage(abilities),
	}
	members, err := s.call(ctx, string(mcp.MethodServerDiscover), map[string]any{})
	var versions []string
	switch {
	case err != nil:
	case json.Unmarshal(members["supportedVersions"], &versions) != nil,
		!slices.Contains(versions, mcp.ProtocolVersion20260728):
		err = errors.New("the server speaks another protocol")
	default:
		return s.offers(members)
	}
	s.meta = nil
	return err
}

func (s *server) initialize(ctx context.Context, abilities []byte) error {
	members, err := s.call(ctx, string(mcp.MethodInitialize), map[string]any{
		"protocolVersion": mcp.LATEST_LEGACY_PROTOCOL_VERSION, "capabilities": json.RawMessage(abilities),
		"clientInfo": self(),
	})
	if err != nil {
		return err
	}
	var version string
	if json.Unmarshal(members["protocolVersion"], &version) != nil ||
		!slices.Contains(mcp.LegacyProtocolVersions(), version) {
		return errors.New("the server speaks a protocol that pfar does not")
	}
	var told mcp.JSONRPCNotification
	told.JSONRPC, told.Method = mcp.JSONRPC_VERSION, string(mcp.MethodNotificationInitialized)
	if err := s.SendNotification(ctx, told); err != nil {
		return s.gone(string(mcp.MethodInitialize))
	}
	return s.offers(members)
}

func (s *server) offers(members map[string]json.RawMessage) error {
	if json.Unmarshal(members["capabilities"], &s.capabilities) != nil {
		return errors.New("the server's capabilities are not an object")
	}
	return nil
}

func (s *server) has(capability string) bool {
	raw := s.capabilities[capability]
	return len(raw) > 0 && raw[0] == '{'
}

// form has the protocol's names for one kind of definition.
type form struct {
	kind       string
	method     string // of the request that lists the definitions
	member     string // of the result, with the list
	key        string // member that identifies a definition
	capability string // that a server with such definitions declares
}

func forms() []form {
	return []form{
		{drift.Tool, string(mcp.MethodToolsList), "tools", "name", "tools"},
		{drift.Prompt, string(mcp.MethodPromptsList), "prompts", "name", "prompts"},
		{drift.Resource, string(mcp.MethodResourcesList), "resources", "uri", "resources"},
		{drift.Template, string(mcp.MethodResourcesTemplatesList), "resourceTemplates", "uriTemplate", "resources"},
	}
}

const maxCursor = 4 << 10

// pages asks for a list until there are no more pages.
func (s *server) pages(ctx context.Context, f form) (items []json.RawMessage, err error) {
	seen, cursor := map[string]bool{}, ""
	for range s.limits.pages {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		members, err := s.call(ctx, f.method, params)
		if r, ok := errors.AsType[refusal](err); ok && r.Code == mcp.METHOD_NOT_FOUND && len(items) == 0 {
			return nil, nil // mostly templates: no capability says whether there are any
		}
		if err != nil {
			return nil, err
		}
		var page []json.RawMessage
		if json.Unmarshal(members[f.member], &page) != nil || page == nil {
			return nil, fmt.Errorf("the server answered %s without %s", f.method, f.member)
		}
		if items = append(items, page...); len(items) > s.limits.items {
			return nil, fmt.Errorf("the server has more than %d %s", s.limits.items, f.member)
		}
		next := members["nextCursor"]
		cursor = ""
		if len(next) > 0 && json.Unmarshal(next, &cursor) != nil || len(cursor) > maxCursor {
			const format = "the server answered %s with a cursor that is not a string of at most %d bytes"
			return nil, fmt.Errorf(format, f.method, maxCursor)
		}
		if cursor == "" {
			return items, nil
		}
		if seen[cursor] {
			return nil, fmt.Errorf("the server answered %s with the same cursor twice", f.method)
		}
		seen[cursor] = true
	}
	return nil, fmt.Errorf("the server answered %s with more than %d pages", f.method, s.limits.pages)
}
