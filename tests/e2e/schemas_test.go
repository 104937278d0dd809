package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// misuse is a call that the tool's schema forbids, and what the answer is to name.
type misuse struct {
	tool, arguments string // "" sends none
	path, rule      string
}

var misuses = []misuse{
	{"sum", `{"a":"1","b":2}`, "/a", "/properties/a/type"},
	{"sum", `{"a":1,"b":1e400}`, "/b", "/properties/b/maximum"},
	{"sum", `{"a":1,"b":100.00000000000000000001}`, "/b", "/properties/b/maximum"},
	{"sum", `{"a":1}`, "", "/required"},
	{"sum", `{"A":1,"a":1,"b":2}`, "", "/additionalProperties"},
	{"sum", "", "", "/required"},
	{"text", `{"message":""}`, "/message", "/properties/message/minLength"},
	{"text", `{"message":["a"]}`, "/message", "/properties/message/type"},
	{"steps", `{"steps":1.5,"label":"x"}`, "/steps", "/properties/steps/type"},
	{"steps", `{"steps":10,"label":"x"}`, "/steps", "/properties/steps/maximum"},
}

// TestSchemasAreHeldTo wants arguments that a tool forbids to go no further than pfar, and results that it forbids to
// go no further back, each with an answer that names the place and the rule.
func TestSchemasAreHeldTo(t *testing.T) {
	if os.Getuid() == ordinary {
		return // it has run as root, and is about no privilege
	}
	t.Parallel()
	p := startPlain(t)
	for _, young := range []bool{false, true} {
		for _, server := range []string{"old", "new"} {
			for _, prefix := range []string{"", server + "__"} {
				path := "/mcp"
				if prefix == "" {
					path += "/" + server
				}
				t.Run(fmt.Sprintf("client modern %t, server %s, %s", young, server, path), func(t *testing.T) {
					holdTo(t, p.speakHTTP(young, path), prefix)
				})
			}
		}
	}
}

func holdTo(t *testing.T, s speaker, prefix string) {
	id := 1
	call := func(tool, arguments string) spoken {
		id++
		a, err := s.ask("tools/call", callParams(s, prefix+tool, arguments), fmt.Sprint(id), "", prefix+tool)
		check(t, err)
		return a
	}
	received := func() string { return text(firstText(call("received", "{}"))) }
	before := received()
	for _, m := range misuses {
		if a := call(m.tool, m.arguments); !m.named(a, s.modern()) {
			t.Errorf("%s %s: %s %s, want a failed call at %q by %s", m.tool, m.arguments, a.member, a.value, m.path, m.rule)
		}
	}
	var was, is int
	fmt.Sscan(before, &was)
	if fmt.Sscan(received(), &is); is != was+1 {
		t.Errorf("the server received %d calls, want only the one that counts them", is-was)
	}
	a := call("wrong", "{}")
	data := member(a.value, "data")
	if a.member != "error" || text(member(data, "path")) != "/sum" || !strings.HasSuffix(text(member(data, "rule")), "/properties/sum/type") ||
		strings.Contains(string(a.value), "three") && !strings.Contains(text(member(a.value, "message")), "outputSchema") {
		t.Errorf("a result that the output schema forbids: %s %s", a.member, a.value)
	}
}

// named reports whether an answer is a result that says what is wrong with the call: in words, which a model reads, and
// apart from them, for programs.
func (m misuse) named(a spoken, modern bool) bool {
	where := "at the top"
	if m.path != "" {
		where = fmt.Sprintf("at %q", m.path)
	}
	blocks, err := values(member(a.value, "content"))
	meta, said := member(a.value, "_meta"), text(firstText(a))
	violation := member(meta, "pfar/violation")
	rule := text(member(violation, "rule"))
	return err == nil && len(blocks) == 1 && a.member == "result" && string(member(a.value, "isError")) == "true" &&
		modern == (string(member(a.value, "resultType")) == `"complete"`) && member(a.value, "structuredContent") == nil &&
		member(meta, "pfar/server") != nil && member(meta, "pfar/label") != nil &&
		text(member(violation, "path")) == m.path && strings.HasSuffix(rule, m.rule) &&
		strings.HasPrefix(said, "pfar has not called the tool: ") && strings.Contains(said, fmt.Sprintf("tool %q: %s: ", m.tool, where)) &&
		strings.Contains(said, "(rule "+rule+")")
}

// callParams are those of tools/call.
func callParams(s speaker, tool, arguments string) string {
	params := fmt.Sprintf(`{"name":%q`, tool)
	if arguments != "" {
		params += `,"arguments":` + arguments
	}
	if s.modern() {
		params += `,"_meta":{` + modernMeta + `}`
	}
	return params + "}"
}

// firstText is the text of the first block of a result.
func firstText(a spoken) []byte {
	blocks, err := values(member(a.value, "content"))
	if err != nil || len(blocks) == 0 {
		b, _ := json.Marshal(fmt.Sprintf("no content in %.300s", a.value))
		return b
	}
	return member(blocks[0], "text")
}
