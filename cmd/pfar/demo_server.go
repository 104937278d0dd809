package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/spf13/cobra"
)

// demoServerCommand is an MCP server on stdio, which every machine with pfar has: pfar demo runs it as it would a
// stranger's.
func (c demoVerb) demoServerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "demo-server", Short: "The MCP server of pfar demo, on standard input and output", Hidden: true, Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return untilEOF(cmd.Context(), c.stdin, func(line []byte) error { return demoAnswer(cmd.Context(), line, c.stdout) })
		},
	}
}

// demoTool is a tool with one argument, a string.
type demoTool struct {
	name, description, argument string
	call                        func(ctx context.Context, value string) (string, error)
}

func demoTools() []demoTool {
	return []demoTool{
		{"echo", "Returns a text as it is.", "text", func(_ context.Context, text string) (string, error) { return text, nil }},
		{"fetch", "Reads the first page of a host.", "host", demoFetch},
		{"publish", "Publishes a text, and cannot take it back. (It does nothing.)", "text",
			func(_ context.Context, text string) (string, error) {
				return "published: " + text, nil
			}},
	}
}

const maxFetched = 4 << 10

// demoFetch asks the egress bridge for a host, as every program does that heeds HTTP_PROXY.
func demoFetch(ctx context.Context, host string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxFetched))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(b)))
	}
	return string(b), err
}

// demoAnswer answers one message.
func demoAnswer(ctx context.Context, line []byte, out io.Writer) error {
	m, err := parseMessage(line)
	if err != nil || !m.wantsAnswer() {
		return nil
	}
	answer := map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "id": m.ID}
	if result, code := demoResult(ctx, m); code == 0 {
		answer["result"] = result
	} else {
		answer["error"] = map[string]any{"code": code, "message": "not offered: " + m.Method}
	}
	b, err := json.Marshal(answer)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n", b)
	}
	return err
}

// demoResult is the result of a request, or the code of an error.
func demoResult(ctx context.Context, m message) (result any, code int) {
	switch m.Method {
	case string(mcp.MethodInitialize):
		return map[string]any{
			"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "pfar-demo", "version": readBuild().Version},
		}, 0
	case string(mcp.MethodPing):
		return map[string]any{}, 0
	case string(mcp.MethodToolsList):
		var list []any
		for _, t := range demoTools() {
			list = append(list, map[string]any{"name": t.name, "description": t.description, "inputSchema": map[string]any{
				"type": "object", "properties": map[string]any{t.argument: map[string]any{"type": "string"}}, "required": []string{t.argument},
			}})
		}
		return map[string]any{"tools": list}, 0
	case string(mcp.MethodToolsCall):
		text, err := demoCall(ctx, m.Params)
		if err != nil {
			text = err.Error()
		}
		return map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}, "isError": err != nil}, 0
	}
	return nil, mcp.METHOD_NOT_FOUND
}

func demoCall(ctx context.Context, params json.RawMessage) (string, error) {
	var call struct {
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments"`
	}
	if err := json.Unmarshal(params, &call); err != nil {
		return "", err
	}
	for _, t := range demoTools() {
		if t.name == call.Name {
			return t.call(ctx, call.Arguments[t.argument])
		}
	}
	return "", errors.New("no such tool")
}
