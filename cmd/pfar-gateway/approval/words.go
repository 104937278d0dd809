package approval

import (
	"encoding/json"
	"fmt"

	"github.com/pfar/pfar/units/jsonrpc"
)

// Text tells a model, or whoever reads its conversation, what has become of a call that was not run: to wait, and what
// shows the call to the one who decides. There is no link, for there is no page, and nothing that a client could take
// for the question itself; it does not say how an approval is given either.
func (o Outcome) Text(call string) string {
	switch o.State {
	case Pending:
		return fmt.Sprintf("%s has not run: it waits for the approval of the person who runs pfar, who can see it with: "+
			"pfar approvals show %s. To wait longer, or to run it once after approval, send the same call again, unchanged.",
			call, o.ID)
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
