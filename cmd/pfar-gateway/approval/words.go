package approval

import (
	"encoding/json"
	"fmt"

	"github.com/pfar/pfar/units/jsonrpc"
)

// Text tells a model, or whoever reads its conversation, what has become of a call that was not run: to wait, and what
// shows the call to the one who decides. The link leads to a sign-in. Nothing in the text could pass for the question
// itself, and it does not say how an approval is given.
func (o Outcome) Text(call string) string {
	switch o.State {
	case Pending:
		at := ""
		if o.Link != "" {
			at = " at " + o.Link + ", or"
		}
		return fmt.Sprintf("%s has not run: it waits for the approval of the person who runs pfar, who can see it%s with: "+
			"pfar approvals show %s. To wait longer, or to run it once after approval, send the same call again, unchanged.",
			call, at, o.ID)
	case Approved:
		return call + " is approved."
	}
	reason := o.Reason
	if reason == "" {
		reason = "it was denied"
	}
	if o.ID != "" {
		reason += " (approval " + o.ID + ")"
	}
	return fmt.Sprintf("%s has not run: %s.", call, reason)
}

// meta is what programs read of it, as members of _meta.
func (o Outcome) meta() map[string]any {
	m := map[string]any{"state": o.State.String()}
	if o.ID != "" {
		m["id"] = o.ID
	}
	if o.Link != "" {
		m["link"] = o.Link
	}
	return map[string]any{"pfar/approval": m}
}

// ToolError is the result of a tools/call that was not run: an error of the tool, which models read and act on.
func (o Outcome) ToolError(call string) []byte {
	return encode(map[string]any{
		"content": []any{map[string]any{"type": "text", "text": o.Text(call)}},
		"isError": true,
		"_meta":   o.meta(),
	})
}

// Code is of the error with which other requests than tools/call are answered that were not run.
const Code = -32061

// Error is the answer to other requests that were not run.
func (o Outcome) Error(call string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: Code, Text: o.Text(call), Data: encode(o.meta()["pfar/approval"])}
}

func encode(v any) []byte {
	b, _ := json.Marshal(v) // cannot fail: texts, maps of them
	return b
}
