package serve

import (
	"context"
	"fmt"
	"testing"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
)

// reader is the person at another implementation's client: links are opened, and the client is given an answer.
type reader struct {
	opened chan mcp.ElicitationParams
	says   mcp.ElicitationResponseAction
}

func (r reader) Elicit(_ context.Context, q mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	r.opened <- q.Params
	answer := mcp.ElicitationResponse{Action: r.says, Content: map[string]any{"approve": true}}
	return &mcp.ElicitationResult{ElicitationResponse: answer}, nil
}

// called is what a call gives in the end.
type called struct {
	result *mcp.CallToolResult
	err    error
}

// TestHeldByAnotherImplementation: the client of a library that shows links gets the one of the approval, once, of
// either generation. What its person answers there decides nothing; what the operator answers does.
func TestHeldByAnotherImplementation(t *testing.T) {
	for _, says := range []mcp.ElicitationResponseAction{
		mcp.ElicitationResponseActionAccept, mcp.ElicitationResponseActionDecline, mcp.ElicitationResponseActionCancel,
	} {
		for _, approve := range []bool{false, true} {
			for name, modern := range map[string]bool{"sessions": false, "stateless": true} {
				t.Run(fmt.Sprintf("%s, %s, approved: %t", name, says, approve), func(t *testing.T) {
					heldByLibrary(t, modern, says, approve)
				})
			}
		}
	}
}

func heldByLibrary(t *testing.T, modern bool, says mcp.ElicitationResponseAction, approve bool) {
	g, l := holding(t, modern, func(*approval.Limits) {})
	ctx, cancel := context.WithTimeout(t.Context(), registrytest.Patience)
	defer cancel()
	person := reader{opened: make(chan mcp.ElicitationParams, 8), says: says}
	links := mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapability{URL: &struct{}{}}}
	c := library(t, g, "/mcp/one", modern, mcpclient.WithElicitationHandler(person), mcpclient.WithClientCapabilities(links))
	notes := make(chan mcp.JSONRPCNotification, 64)
	c.OnNotification(func(n mcp.JSONRPCNotification) { notes <- n })
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
		ProtocolVersion: mcp.LATEST_PROTOCOL_VERSION, ClientInfo: mcp.Implementation{Name: "t", Version: "1"},
		Capabilities: links,
	}}); err != nil {
		t.Fatal(err)
	}
	ends := make(chan called, 1)
	go func() {
		call := mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "kanari"}}
		result, err := c.CallTool(ctx, mcp.CallToolRequest{Params: call})
		ends <- called{result, err}
	}()
	var link mcp.ElicitationParams
	select {
	case link = <-person.opened:
	case end := <-ends:
		t.Fatalf("no link is shown: %+v, %v", end.result, end.err)
	}
	one := g.pending(t)
	if link.Mode != mcp.ElicitationModeURL || link.URL != "https://pfar.test:7443/call/"+one.ID {
		t.Errorf("opened: %+v, and %s waits", link, one.ID)
	}
	if sent := calledWith(l); sent != "" {
		t.Errorf("before anybody has answered the server got %s", sent)
	}
	g.answer(t, one, approve)
	end := <-ends
	if end.err != nil || end.result.IsError == approve {
		t.Errorf("it ends with %+v, %v", end.result, end.err)
	}
	if sent := calledWith(l); (sent != "") != approve {
		t.Errorf("the server got %q", sent)
	}
	if !modern {
		await(t, notes, string(mcp.MethodNotificationElicitationComplete))
	}
	if len(person.opened) > 0 {
		t.Errorf("another link is shown: %+v", <-person.opened)
	}
}
