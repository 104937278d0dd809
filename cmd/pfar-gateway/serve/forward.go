package serve

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
)

// forward sends the request to a server with the edits made to its parameters, and returns the result as it came. The
// client's headers, and with them its token, go no further than here (GC-53).
func (x *exchange) forward(ctx context.Context, up *registry.Upstream, edits ...jsonrpc.Edit) (reply, error) {
	call := registry.Call{Method: x.msg.Method, Params: x.msg.Params}
	if i := x.params.Index("_meta"); i >= 0 {
		edit, err := x.ownMeta(up, &call)
		if err != nil {
			return reply{}, err
		}
		edits = append(edits, x.params.Replace(i, edit))
	}
	if len(edits) > 0 {
		slices.SortFunc(edits, func(a, b jsonrpc.Edit) int { return a.Start - b.Start })
		call.Params = jsonrpc.Splice(make([]byte, 0, len(call.Params)+64), call.Params, edits...)
	}
	if call.Token == 0 {
		result, err := up.Call(ctx, call)
		return reply{result: labelled(up, call, result)}, err
	}
	return x.withProgress(ctx, up, call)
}

// labelled puts the server's label on what a model will read.
func labelled(up *registry.Upstream, call registry.Call, result []byte) []byte {
	switch mcp.MCPMethod(call.Method) {
	case mcp.MethodToolsCall, mcp.MethodResourcesRead, mcp.MethodPromptsGet:
		return up.Label(result)
	}
	return result
}

// ownMeta returns the request's _meta as the server is to see it: without what the newer generation says to pfar, which
// would make an older server take the request for one of those, and with a progress token that no other client has.
func (x *exchange) ownMeta(up *registry.Upstream, call *registry.Call) ([]byte, error) {
	var added []byte
	if token := x.meta.Get("progressToken"); token != nil {
		if !jsonrpc.ValidID(token) {
			return nil, invalidParams("the progressToken is not a string or an integer")
		}
		if !x.plain {
			call.Token, call.ClientToken = up.Token(), token
			added = strconv.AppendInt([]byte(`"progressToken":`), call.Token, 10)
		}
	}
	return x.meta.Merge(nil, func(name []byte) bool {
		return string(name) != "progressToken" && !strings.HasPrefix(string(name), "io.modelcontextprotocol/")
	}, added), nil
}

// progressBacklog bounds the progress that waits for a slow client; what does not fit is dropped, the next one says
// more anyway.
const progressBacklog = 32

// withProgress calls and turns the answer into an event stream with the first progress that comes.
func (x *exchange) withProgress(ctx context.Context, up *registry.Upstream, call registry.Call) (reply, error) {
	type outcome struct {
		result []byte
		err    error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	progress := make(chan []byte, progressBacklog)
	call.Progress = func(params []byte) {
		select {
		case progress <- params:
		default:
		}
	}
	done := make(chan outcome, 1)
	go func() {
		result, err := up.Call(ctx, call)
		done <- outcome{result, err}
	}()
	send := func(params []byte) {
		if x.stream().send(jsonrpc.AppendNotification(nil, string(mcp.MethodNotificationProgress), params)) != nil {
			cancel() // nobody is there
		}
	}
	for {
		select {
		case params := <-progress:
			send(params)
		case o := <-done:
			for len(progress) > 0 { // it came before the answer
				send(<-progress)
			}
			return reply{result: labelled(up, call, o.result)}, o.err
		}
	}
}
