package serve

import (
	"context"
	"os"
	"testing"
	"time"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/handover"
)

// TestInterop has another implementation at both ends.
func TestInterop(t *testing.T) {
	upstream := server.NewMCPServer("lib", "1.2.3", server.WithToolCapabilities(true), server.WithPromptCapabilities(true),
		server.WithResourceCapabilities(true, true), server.WithInstructions("use wisely"))
	upstream.AddTool(mcp.NewTool("shout", mcp.WithString("text", mcp.Required()), mcp.WithReadOnlyHintAnnotation(true)),
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if r.Params.Meta != nil && r.Params.Meta.ProgressToken != nil {
				_ = server.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress",
					map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": 0.5})
				time.Sleep(100 * time.Millisecond) // the library writes it beside the answer, in no order
			}
			return mcp.NewToolResultText(r.GetString("text", "") + "!"), nil
		})
	upstream.AddPrompt(mcp.NewPrompt("greet"), func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return mcp.NewGetPromptResult("a greeting", nil), nil
	})
	upstream.AddResource(mcp.NewResource("mem://a", "a"), func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: "mem://a", Text: "A"}}, nil
	})
	g := start(t, DefaultLimits())
	l := handLibrary(t, g, upstream)
	if got := l.Ready(t); got.Tools != 1 || got.Prompts != 1 || got.Resources != 1 || got.Server != "lib 1.2.3" {
		t.Errorf("ready: %+v", got)
	}
	for name, modern := range map[string]bool{"sessions": false, "stateless": true} {
		t.Run(name, func(t *testing.T) { interop(t, g, upstream, modern) })
	}
}

// handLibrary runs mcp-go's stdio server at the other end of real pipes.
func handLibrary(t *testing.T, g *gateway, s *server.MCPServer) *registrytest.Launched {
	t.Helper()
	var ends [4]*os.File
	for i := 0; i < 4; i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.NewStdioServer(s).Listen(ctx, ends[0], ends[3]) // ends with its input
	}()
	t.Cleanup(func() {
		cancel()
		ends[0].Close()
		ends[3].Close()
		<-done
	})
	return g.Hand(t, handover.Server{Name: "lib"}, ends[1], ends[2])
}

// library is mcp-go's client of an endpoint.
func library(t *testing.T, g *gateway, path string, modern bool, options ...mcpclient.ClientOption) *mcpclient.Client {
	t.Helper()
	via := []transport.StreamableHTTPCOption{
		transport.WithHTTPHeaders(map[string]string{"Authorization": "Bearer " + token}),
	}
	if !modern {
		//lint:ignore SA1019 both generations of the protocol are tested
		via = append(via, transport.WithContinuousListening())
		//lint:ignore SA1019 both generations of the protocol are tested
		options = append(options, mcpclient.WithLegacyProtocolOnly())
	}
	tr, err := transport.NewStreamableHTTP("http://"+g.addr+path, via...)
	if err != nil {
		t.Fatal(err)
	}
	c := mcpclient.NewClient(tr, options...)
	t.Cleanup(func() { c.Close() })
	return c
}

func interop(t *testing.T, g *gateway, upstream *server.MCPServer, modern bool) {
	ctx, cancel := context.WithTimeout(context.Background(), registrytest.Patience)
	defer cancel()
	c := library(t, g, "/mcp", modern)
	notes := make(chan mcp.JSONRPCNotification, 64)
	c.OnNotification(func(n mcp.JSONRPCNotification) { notes <- n })
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	init, err := c.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{ProtocolVersion: mcp.LATEST_PROTOCOL_VERSION, ClientInfo: mcp.Implementation{Name: "t", Version: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := mcp.IsModernProtocol(init.ProtocolVersion); got != modern || init.ServerInfo.Name != "pfar" {
		t.Errorf("initialized: %+v", init)
	}
	tools, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "lib__shout" || !*tools.Tools[0].Annotations.ReadOnlyHint {
		t.Fatalf("tools: %+v, %v", tools, err)
	}
	call := mcp.CallToolRequest{Params: mcp.CallToolParams{Name: "lib__shout", Arguments: map[string]any{"text": "hey"}, Meta: &mcp.Meta{ProgressToken: "p"}}}
	result, err := c.CallTool(ctx, call)
	if err != nil || len(result.Content) != 1 || result.Content[0].(mcp.TextContent).Text != "hey!" {
		t.Fatalf("call: %+v, %v", result, err)
	}
	await(t, notes, "notifications/progress")
	if prompt, err := c.GetPrompt(ctx, mcp.GetPromptRequest{Params: mcp.GetPromptParams{Name: "lib__greet"}}); err != nil || prompt.Description != "a greeting" {
		t.Errorf("prompt: %+v, %v", prompt, err)
	}
	if read, err := c.ReadResource(ctx, mcp.ReadResourceRequest{Params: mcp.ReadResourceParams{URI: "mem://a"}}); err != nil || read.Contents[0].(mcp.TextResourceContents).Text != "A" {
		t.Errorf("resource: %+v, %v", read, err)
	}
	call.Params.Name = "lib__none"
	if _, err := c.CallTool(ctx, call); err == nil {
		t.Error("a tool that is not there can be called")
	}
	if modern {
		stop, err := c.ListenAsync(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		await(t, notes, "notifications/subscriptions/acknowledged")
	} else {
		registrytest.Eventually(t, "the client listens", func() bool { return listening(g) })
	}
	name := "late"
	upstream.AddTool(mcp.NewTool(name), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("late"), nil
	})
	await(t, notes, "notifications/tools/list_changed")
	registrytest.Eventually(t, "the owner accepts the tool, and it is there", func() bool {
		if _, err := g.Pins.Accept(pins.By{}, "lib"); err != nil {
			return false
		}
		tools, err = c.ListTools(ctx, mcp.ListToolsRequest{})
		return err == nil && len(tools.Tools) == 2
	})
	upstream.DeleteTools(name)
	await(t, notes, "notifications/tools/list_changed")
	registrytest.Eventually(t, "the tool is gone", func() bool {
		tools, err = c.ListTools(ctx, mcp.ListToolsRequest{})
		return err == nil && len(tools.Tools) == 1
	})
}

// listening reports whether some session has its stream open.
func listening(g *gateway) bool {
	for _, s := range g.srv.sessions.All() {
		if s.Streams() > 0 {
			return true
		}
	}
	return false
}

func await(t *testing.T, notes <-chan mcp.JSONRPCNotification, method string) {
	t.Helper()
	for {
		select {
		case n := <-notes:
			if n.Method == method {
				return
			}
		case <-time.After(registrytest.Patience):
			t.Fatal("no " + method)
		}
	}
}
