package schema

import (
	"encoding/json"
	"testing"
)

// honest are the shapes that the common libraries make of a tool's types, each with a value that conforms and one that
// does not.
var honest = []struct{ name, schema, value, wrong, text string }{
	{"zod 3, zod-to-json-schema",
		`{"type":"object","properties":{"email":{"type":"string","format":"email"},"n":{"type":"integer","exclusiveMinimum":0},` +
			`"kind":{"type":"string","enum":["a","b"]},"lit":{"type":"string","const":"x"},"un":{"type":["string","number"]},` +
			`"list":{"type":"array","items":{"$ref":"#/properties/email"}},"rec":{"type":"object","additionalProperties":{"type":"number"}},` +
			`"tuple":{"type":"array","minItems":2,"maxItems":2,"items":[{"type":"string"},{"type":"number"}]},"opt":{"anyOf":[{"not":{}},{"type":"string"}]},` +
			`"date":{"type":"string","format":"date-time"}},"required":["email"],"additionalProperties":false,"$schema":"http://json-schema.org/draft-07/schema#"}`,
		`{"email":"not an address","n":1,"kind":"a","lit":"x","un":2.5,"list":["x"],"rec":{"a":1},"tuple":["a",1],"opt":"x","date":"today"}`,
		`{"email":"a","tuple":[1,"a"]}`,
		`at "/tuple/0": want string, got number (rule /properties/tuple/items/0/type); at "/tuple/1": want number, got string (rule /properties/tuple/items/1/type)`},
	{"zod 4, toJSONSchema",
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{` +
			`"email":{"type":"string","format":"email","pattern":"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"},` +
			`"n":{"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991},"id":{"type":"string","format":"uuid",` +
			`"pattern":"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000)$"},` +
			`"rec":{"type":"object","propertyNames":{"type":"string","pattern":"^[a-z]+$"},"additionalProperties":{"type":"number"}},` +
			`"tuple":{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}]},"nul":{"anyOf":[{"type":"string"},{"type":"null"}]},` +
			`"emoji":{"type":"string","pattern":"^(\\p{Extended_Pictographic}|\\p{Emoji_Component})+$"},"any":{},"json":{"$ref":"#/$defs/__schema0"}},` +
			`"required":["email"],"additionalProperties":false,"$defs":{"__schema0":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"},` +
			`{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/__schema0"}},{"type":"object","propertyNames":{"type":"string"},"additionalProperties":{"$ref":"#/$defs/__schema0"}}]}}}`,
		`{"email":"a.b@c.de","n":-1,"id":"00000000-0000-0000-0000-000000000000","rec":{"a":1},"tuple":["a",1,null],"nul":null,"emoji":"👍🏽","any":[],` +
			`"json":{"a":[{"b":[{"c":[{"d":[{"e":[{"f":[{"g":[{"h":[{"i":[{"j":[{"k":[1]}]}]}]}]}]}]}]}]}]}]}}`,
		`{"email":"a..b@c.de","n":9007199254740993,"emoji":"x"}`,
		`at "/email": want a match of "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$", ` +
			`got "a..b@c.de" (rule /properties/email/pattern); at "/emoji": want a match of "^(\\p{Extended_Pictographic}|\\p{Emoji_Component})+$", got "x" ` +
			`(rule /properties/emoji/pattern); at "/n": want at most 9007199254740991, got 9007199254740993 (rule /properties/n/maximum)`},
	{"TypeBox",
		`{"$id":"Node","type":"object","required":["id","nodes"],"properties":{"id":{"type":"string"},"nodes":{"type":"array","items":{"$ref":"Node"}},` +
			`"u":{"anyOf":[{"const":"a","type":"string"},{"const":"b","type":"string"}]},"i":{"allOf":[{"type":"object","required":["x"],` +
			`"properties":{"x":{"type":"number"}}},{"type":"object","properties":{"y":{"type":"number"}}}],"unevaluatedProperties":false},` +
			`"r":{"type":"object","patternProperties":{"^(.*)$":{"type":"boolean"}}}}}`,
		`{"id":"1","nodes":[{"id":"2","nodes":[]}],"u":"b","i":{"x":1,"y":2},"r":{"any thing":true}}`,
		`{"id":"1","nodes":[{"id":2,"nodes":[]}],"i":{"x":1,"z":2},"u":"c"}`,
		`at "/i/z": no value is allowed here (rule /properties/i/unevaluatedProperties); at "/nodes/0/id": want string, got number (rule /properties/id/type); ` +
			`at "/u": want "a", got "c" (rule /properties/u/anyOf/0/const, the closest of 2)`},
	{"FastMCP, pydantic",
		`{"$defs":{"Color":{"enum":["red","blue"],"title":"Color","type":"string"},"Node":{"properties":{"name":{"title":"Name","type":"string"},` +
			`"child":{"anyOf":[{"$ref":"#/$defs/Node"},{"type":"null"}],"default":null},"color":{"$ref":"#/$defs/Color","default":"red"}},"required":["name"],"title":"Node","type":"object"},` +
			`"Cat":{"properties":{"type":{"const":"cat","title":"Type","type":"string"},"lives":{"type":"integer"}},"required":["type","lives"],"type":"object"},` +
			`"Dog":{"properties":{"type":{"const":"dog","title":"Type","type":"string"},"breed":{"type":"string"}},"required":["type","breed"],"type":"object"}},` +
			`"properties":{"node":{"$ref":"#/$defs/Node"},"limit":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null,"title":"Limit"},` +
			`"pet":{"discriminator":{"mapping":{"cat":"#/$defs/Cat","dog":"#/$defs/Dog"},"propertyName":"type"},"oneOf":[{"$ref":"#/$defs/Cat"},{"$ref":"#/$defs/Dog"}]},` +
			`"pair":{"maxItems":2,"minItems":2,"prefixItems":[{"type":"integer"},{"type":"string"}],"type":"array"},"tags":{"items":{"type":"string"},"type":"array","uniqueItems":true},` +
			`"ratio":{"exclusiveMinimum":0.0,"maximum":1.0,"type":"number"},"when":{"format":"date-time","type":"string"},"amount":{"anyOf":[{"type":"number"},` +
			`{"pattern":"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$","type":"string"}]}},"required":["node"],"title":"toolArguments","type":"object"}`,
		`{"node":{"name":"a","child":{"name":"b","child":null,"color":"blue"}},"limit":null,"pet":{"type":"dog","breed":"x"},"pair":[1,"a"],"tags":["a"],"ratio":0.5,"when":"x","amount":"1.5"}`,
		`{"node":{"name":"a","child":{"name":1}},"pet":{"type":"dog"},"tags":["a","a"],"limit":"5"}`,
		`at "/limit": want integer or null, got string (rule /properties/limit/anyOf); at "/node/child/name": want string, got number (rule /$defs/Node/properties/name/type, the closest of 2); ` +
			`at "/pet": the member "breed" is missing (rule /$defs/Dog/required, the closest of 2); at "/tags": items 0 and 1 are equal (rule /properties/tags/uniqueItems)`},
	{"mcp-go",
		`{"type":"object","properties":{"op":{"type":"string","description":"x","enum":["add","sub"]},"x":{"type":"number","maximum":18446744073709551615},` +
			`"s":{"type":"string","maxLength":18446744073709551615},"list":{"type":"array","items":{"type":"string"}}},"required":["op","x"]}`,
		`{"op":"add","x":18446744073709551615,"s":"x","list":[],"more":1}`, `{"op":"mul","x":18446744073709551616}`,
		`at "/op": want one of "add", "sub", got "mul" (rule /properties/op/enum); at "/x": want at most 18446744073709551615, got 18446744073709551616 (rule /properties/x/maximum)`},
	{"draft-07 that does not say so", `{"type":"object","properties":{"t":{"type":"array","items":[{"type":"string"}],"additionalItems":false}}}`,
		`{"t":["a"]}`, `{"t":["a",1]}`, `at "/t": the last 1 items are not allowed (rule /properties/t/additionalItems)`},
	{"OpenAPI 3.0", `{"type":"object","properties":{"n":{"type":"number","minimum":0,"exclusiveMinimum":true,"nullable":true}}}`,
		`{"n":1}`, `{"n":0}`, `at "/n": want more than 0, got 0 (rule /properties/n/exclusiveMinimum)`},
	{"a metaschema of its own", `{"$schema":"https://example.com/dialect","type":"object","properties":{"a":{"$schema":"file:///etc/passwd","type":"string"}}}`,
		`{"a":""}`, `{"a":1}`, `at "/a": want string, got number (rule /properties/a/type)`},
	{"a schema as argument", `{"properties":{"schema":{"$ref":"https://json-schema.org/draft/2020-12/schema"},"old":{"$ref":"http://json-schema.org/draft-07/schema#"}}}`,
		`{"schema":{"properties":{"a":{"items":{"type":"string"}}}},"old":{"type":"object"}}`, `{"old":{"minLength":-1}}`,
		`at "/old/minLength": want at least 0, got -1 (rule http://json-schema.org/draft-07/schema#/definitions/nonNegativeInteger/minimum)`},
	{"anchors", `{"$id":"https://example.com/a","$ref":"#top","$defs":{"a":{"$anchor":"top","type":"object","properties":{"b":{"$ref":"b.json#/$defs/x"}}},` +
		`"b":{"$id":"b.json","$defs":{"x":{"type":"integer"}}}}}`, `{"b":1}`, `{"b":""}`, `at "/b": want integer, got string (rule /$defs/b/$defs/x/type)`},
	{"dynamic", `{"$dynamicAnchor":"node","type":"object","properties":{"children":{"type":"array","items":{"$dynamicRef":"#node"}}},"required":["id"]}`,
		`{"id":1,"children":[{"id":2}]}`, `{"id":1,"children":[{"id":2,"children":[{}]}]}`,
		`at "/children/0/children/0": the member "id" is missing (rule /required)`},
	{"names", `{"allOf":[{"properties":{"a":{"propertyNames":{"maxLength":1}}}}],"properties":{"b":{"propertyNames":{"maxLength":1}}}}`,
		`{"a":{"x":1}}`, `{"a":{"xx":1},"b":{"yy":1}}`,
		`at "/a": the name "xx": want at most 1 character, got 2 (rule /allOf/0/properties/a/propertyNames/maxLength); ` +
			`at "/b": the name "yy": want at most 1 character, got 2 (rule /properties/b/propertyNames/maxLength)`},
	{"false", `false`, ``, `1`, `at the top: no value is allowed here (rule "")`},
	{"numbers", `{"const":1.0,"multipleOf":0.1}`, `10e-1`, `1.00000000000000000001`,
		`at the top: want 1.0, got 1.00000000000000000001 (rule /const)`},
}

func TestHonest(t *testing.T) {
	for _, c := range honest {
		t.Run(c.name, func(t *testing.T) {
			s := compiled(t, c.schema)
			if c.value != "" {
				if v := s.Check([]byte(c.value)); v != nil {
					t.Errorf("%s: %v", c.value, v)
				}
			}
			v := s.Check([]byte(c.wrong))
			if v == nil {
				t.Fatalf("%s conforms, want %s", c.wrong, c.text)
			}
			if v.Error() != c.text {
				t.Errorf("\ngot  %s\nwant %s", v, c.text)
			}
		})
	}
}

// calls are arguments, or with "out" results, as clients and servers of the listed packages send them.
var calls = []struct{ server, tool, value, text string }{
	{"server-everything", "echo", `{"message":"hello"}`, ""},
	{"server-everything", "echo", `{}`, `at the top: the member "message" is missing (rule /required)`},
	{"server-everything", "get-sum", `{"a":1,"b":2.5e3}`, ""},
	{"server-everything", "get-env", `{}`, ""},
	{"server-everything", "get-resource-links", `{"count":11}`, `at "/count": want at most 10, got 11 (rule /properties/count/maximum)`},
	{"server-everything", "get-structured-content", `{"location":"Chicago"}`, ""},
	{"server-everything", "get-structured-content out", `{"temperature":36,"conditions":"Light rain / drizzle","humidity":82}`, ""},
	{"server-everything", "get-structured-content out", `{"temperature":"36","conditions":"x","humidity":82}`,
		`at "/temperature": want number, got string (rule /properties/temperature/type)`},
	{"server-filesystem", "edit_file", `{"path":"/a","edits":[{"oldText":"a","newText":"b"}],"dryRun":true}`, ""},
	{"server-filesystem", "read_multiple_files", `{"paths":[]}`, `at "/paths": want at least 1 item, got 0 (rule /properties/paths/minItems)`},
	{"server-filesystem", "read_media_file out", `{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}`, ""},
	{"server-filesystem", "read_media_file out", `{"content":[{"type":"resource","resource":{"uri":"file:///a"}}]}`,
		`at "/content/0/resource": the member "blob" is missing (rule /properties/content/items/anyOf/1/properties/resource/required, the closest of 2)`},
	{"server-memory", "create_entities", `{"entities":[{"name":"a","entityType":"b","observations":["c"]}]}`, ""},
	{"server-memory", "read_graph out", `{"entities":[],"relations":[]}`, ""},
	{"notion-mcp-server", "API-post-search", `{"query":"x","filter":{"value":"page","property":"object"},"page_size":10}`, ""},
	{"notion-mcp-server", "API-get-user", `{"user_id":"not a uuid"}`, ""},
	{"notion-mcp-server", "API-patch-block-children", `{"block_id":"1","children":[{"type":"paragraph","paragraph":{"rich_text":[{"type":"text","text":{"content":"x","link":null}}]}}]}`, ""},
	{"notion-mcp-server", "API-post-page", `{"parent":{"page_id":"1"},"properties":{"title":[]}}`, ""},
	{"notion-mcp-server", "API-post-page", `{"parent":7,"properties":{}}`, `at "/parent": want object or string, got number (rule /properties/parent/anyOf)`},
	{"playwright-mcp", "browser_close", `{}`, ""},
	{"playwright-mcp", "browser_close", `{"x":1}`, `at the top: the member "x" is not allowed (rule /additionalProperties)`},
	{"playwright-mcp", "browser_emulate_media", `{"colorScheme":null,"media":"print"}`, ""},
	{"playwright-mcp", "browser_drop", `{"target":"e1","data":{"text/plain":"x"}}`, ""},
	{"playwright-mcp", "browser_fill_form", `{"fields":[{"target":"e1","name":"n","type":"textbox","value":"v"}]}`, ""},
	{"playwright-mcp", "browser_network_request", `{"index":0}`, `at "/index": want at least 1, got 0 (rule /properties/index/minimum)`},
}

// TestServers compiles the schemas of all tools of some servers on npm.
func TestServers(t *testing.T) {
	all := map[string]*Schema{}
	for server, l := range listings(t) {
		for _, tool := range l.Tools {
			for name, raw := range map[string]json.RawMessage{tool.Name: tool.InputSchema, tool.Name + " out": tool.OutputSchema} {
				if raw == nil {
					continue
				}
				s, err := Compile(raw)
				if err != nil {
					t.Errorf("%s, %s: %v", l.Package, name, err)
					continue
				}
				all[server+" "+name] = s
			}
		}
	}
	for _, c := range calls {
		s := all[c.server+" "+c.tool]
		if s == nil {
			t.Errorf("%s has no %s", c.server, c.tool)
			continue
		}
		text := ""
		if v := s.Check([]byte(c.value)); v != nil {
			text = v.Text
		}
		if text != c.text {
			t.Errorf("%s %s %s:\ngot  %s\nwant %s", c.server, c.tool, c.value, text, c.text)
		}
	}
}
