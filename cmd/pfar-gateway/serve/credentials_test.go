package serve

import (
	"cmp"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestCredentialsInErrors: of what an error shows of an upstream's credentials the client sees nothing, and of
// everything that is no error each byte.
func TestCredentialsInErrors(t *testing.T) {
	const url, field, json = `cloning https://ann:pw@git.test/x`, `401: GET / Authorization: Bearer abc`, `{\"headers\":{\"Cookie\":\"sid=1\"}}`
	const class = `"pfar/error":{"class":"server_error","tries":1,"remedy":"try again later; its owner sees its log: ` +
		`pfar logs s. It may have been carried out: look before you send it again"}`
	for _, c := range []struct{ said, heard string }{ // heard "": what was said
		{`"error":{"code":-32000,"message":"` + url + `"}`,
			`"error":{"data":{` + class + `},"code":-32000,"message":"cloning https://[removed]@git.test/x"}`},
		{`"error":{"code":-32000,"message":"no","data":{"headers":{"Set-Cookie":["a=1"]},"n":1.50}}`,
			`"error":{"code":-32000,"message":"no","data":{` + class + `,"headers":{"Set-Cookie":["[removed]"]},"n":1.50}}`},
		{`"error":{"code":-32000, "message":"see https://git.test/@ann" }`,
			`"error":{"data":{` + class + `},"code":-32000, "message":"see https://git.test/@ann" }`},
		{`"error":{"code":-32602,"message":"` + url + `"}`,
			`"error":{"code":-32602,"message":"cloning https://[removed]@git.test/x"}`},
		{`"error":{"code":-32602, "message":"see https://git.test/@ann" }`, ``},
		{`"result":{"content":[{"type":"text","text":"` + url + `"}],"isError":true}`, `"result":{"content":[{"type":"text","text":"cloning https://[removed]@git.test/x"}],"isError":true}`},
		{`"result":{"isError" : true,"content":[{"type":"text","text":"` + field + `"}]}`, `"result":{"isError" : true,"content":[{"type":"text","text":"401: GET / Authorization: [removed]"}]}`},
		{`"result":{"content":[{"type":"text","text":"` + json + `"}],"is\u0045rror":true}`, `"result":{"content":[{"type":"text","text":"{\"headers\":{\"Cookie\":\"[removed]\"}}"}],"is\u0045rror":true}`},
		{`"result":{"content":[],"structuredContent":{"authorization":"Bearer abc"},"isError":true}`, `"result":{"content":[],"structuredContent":{"authorization":"[removed]"},"isError":true}`},
		{`"result":{"content":[ {"type":"text", "text":"no such file: \u0041"} ],"isError":true}`, ``},
		{`"result":{"content":[{"type":"text","text":"` + url + `"}]}`, ``},
		{`"result":{"content":[{"type":"text","text":"` + field + `"}],"isError":false}`, ``},
		{`"result":{"content":[{"type":"text","text":"` + json + `\u0041"}],"structuredContent":{"authorization":"Bearer abc"},"isError":null}`, ``},
	} {
		g := start(t, DefaultLimits())
		g.Launch(t, handover.Server{Name: "s"}, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			if m.Method == "tools/call" {
				s.Say(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, c.said)
			}
			return m.Method == "tools/call"
		}}).Ready(t)
		want := strings.Replace(cmp.Or(c.heard, c.said), `"result":{`, `"result":{"_meta":{"pfar/server":"s","pfar/label":""},`, 1) + "}"
		if got := g.session(t, "/mcp").call(t, "tools/call", `{"name":"s__echo","arguments":{}}`); !strings.HasSuffix(got, ","+want) {
			t.Errorf("%s\nis heard as %s\nwant %s", c.said, got, want)
		}
	}
}
