package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/units/flows/wording"
)

// result is what tools/call returns.
type result struct {
	Content    []json.RawMessage `json:"content"`
	Structured json.RawMessage   `json:"structuredContent"`
	IsError    bool              `json:"isError"`
	Meta       struct {
		Violation *struct{} `json:"pfar/violation"` // pfar has not called the tool: the arguments are not as it wants them
	} `json:"_meta"`
}

// content is one block of a result.
type content struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"`
	MIMEType string `json:"mimeType"`
	URI      string `json:"uri"`
	Name     string `json:"name"`
	Resource struct {
		URI      string  `json:"uri"`
		MIMEType string  `json:"mimeType"`
		Text     *string `json:"text"`
		Blob     string  `json:"blob"`
	} `json:"resource"`
}

// printResult prints a tool's result; exit code 3 says that the tool calls it an error, 2 that pfar has not called it.
func (c toolsVerb) printResult(t tool, raw json.RawMessage) error {
	var r result
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("reading the result of %s: %w", t.id(), err)
	}
	w := c.stdout
	if r.IsError {
		w = c.stderr
	}
	refused := r.IsError && r.Meta.Violation != nil
	if refused && !c.json() {
		var b strings.Builder
		if err := printText(&b, r, isTerminal(w)); err != nil {
			return err
		}
		return usage("%s", strings.TrimSpace(b.String())).withHint("%s", t.helpLine())
	}
	if c.json() {
		if err := c.printJSON(raw); err != nil {
			return err
		}
	} else if err := printText(w, r, isTerminal(w)); err != nil {
		return err
	}
	if refused {
		return usage("pfar has not called %s: its arguments are wrong", t.id()).withHint("%s", t.helpLine())
	}
	if r.IsError {
		return fail(exitToolError, "%s returned an error", t.id())
	}
	return nil
}

// printText prints a result for people. Structured content is printed only where no text is: MCP has servers repeat
// it as text.
func printText(w io.Writer, r result, terminal bool) error {
	shown := asIs
	if terminal {
		shown = forTerminal
	}
	_, err := io.WriteString(w, resultFor(r, shown))
	return err
}

// textFor makes a text fit for what reads w: a terminal, or a program.
func textFor(w io.Writer) func(string) string {
	if isTerminal(w) {
		return forTerminal
	}
	return asIs
}

func asIs(text string) string { return text }

// forTerminal is a text that does a terminal no harm. A fence is for models: in its place a mark stands before each
// line.
func forTerminal(text string) string {
	if inside, ok := fence.Inside(text); ok {
		return wording.Quote(inside)
	}
	return escape(text, keepLines)
}

// resultFor is a result as printText prints it. shown makes each text of it fit for the reader.
func resultFor(r result, shown func(string) string) string {
	var b strings.Builder
	texts := 0
	for _, raw := range r.Content {
		text, isText := renderContent(raw)
		if isText {
			texts++
		}
		text = shown(text)
		b.WriteString(text)
		if !strings.HasSuffix(text, "\n") {
			b.WriteByte('\n')
		}
	}
	if texts == 0 && len(r.Structured) > 0 && string(r.Structured) != "null" {
		b.WriteString(shown(indentJSON(r.Structured)) + "\n")
	}
	return b.String()
}

// resultText is all text of a result.
func resultText(raw json.RawMessage) string {
	var r result
	_ = json.Unmarshal(raw, &r) // printResult has read it
	var b strings.Builder
	for _, one := range r.Content {
		if text, isText := renderContent(one); isText {
			b.WriteString(text + "\n")
		}
	}
	return b.String()
}

// renderContent returns a block as text, and whether it was text.
func renderContent(raw json.RawMessage) (string, bool) {
	var block content
	if json.Unmarshal(raw, &block) != nil {
		return indentJSON(raw), false
	}
	switch block.Type {
	case "text":
		return block.Text, true
	case "image", "audio":
		return fmt.Sprintf("[%s %s, %d bytes; --output json has them]", block.Type, block.MIMEType, decodedLen(block.Data)), false
	case "resource_link":
		return fmt.Sprintf("[resource %s %s]", block.Name, block.URI), false
	case "resource":
		if block.Resource.Text != nil {
			return *block.Resource.Text, true
		}
		return fmt.Sprintf("[resource %s %s, %d bytes; --output json has them]", block.Resource.URI, block.Resource.MIMEType,
			decodedLen(block.Resource.Blob)), false
	}
	return indentJSON(raw), false
}

func decodedLen(data string) int {
	return base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(data, "=")))
}

func indentJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
