package oauth

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestReadDemand(t *testing.T) {
	const at = "https://mcp.example/.well-known/oauth-protected-resource"
	long := strings.Repeat("x", maxChallenge)
	for name, c := range map[string]struct {
		fields []string
		want   Demand
	}{
		"nothing": {nil, Demand{}},
		"a server": {[]string{`Bearer resource_metadata="` + at + `", scope="b a a"`},
			Demand{Scopes: []string{"a", "b"}, Metadata: at}},
		"spaces and tabs": {[]string{"bEaReR \t resource_metadata = \"" + at + "\" \t,\tscope=a"},
			Demand{Scopes: []string{"a"}, Metadata: at}},
		"step-up": {[]string{`Bearer error="insufficient_scope", scope="files:write", error_description="\"b\" , Basic x"`},
			Demand{Code: "insufficient_scope", Scopes: []string{"files:write"}}},
		"after another one":  {[]string{`Basic realm="x", Bearer scope=a`}, Demand{Scopes: []string{"a"}}},
		"after a token68":    {[]string{`Negotiate YWJj==, Bearer scope=a`}, Demand{Scopes: []string{"a"}}},
		"after a bare one":   {[]string{`Negotiate, Bearer scope=a`}, Demand{Scopes: []string{"a"}}},
		"before another one": {[]string{`Bearer scope=a, Basic realm=x, scope=b`}, Demand{Scopes: []string{"a"}}},
		"two fields":         {[]string{`Basic realm="x"`, `Bearer scope=a`}, Demand{Scopes: []string{"a"}}},
		"two for it":         {[]string{`Bearer scope=a`, `Bearer scope=b`}, Demand{Scopes: []string{"a"}}},
		"tokens":             {[]string{`bearer scope=x,error=y`}, Demand{Code: "y", Scopes: []string{"x"}}},
		"twice":              {[]string{`Bearer scope=a, scope=b`}, Demand{Scopes: []string{"a"}}},
		"bare":               {[]string{`Bearer`}, Demand{}},
		"another scheme":     {[]string{`DPoP scope=a`}, Demand{}},
		"inside a string":    {[]string{`Basic realm="Bearer scope=a"`}, Demand{}},
		"no end":             {[]string{`Bearer scope="a`}, Demand{}},
		"a lone quote":       {[]string{`Bearer scope="a\`}, Demand{}},
		"commas":             {[]string{`,,,Bearer ,, scope=a`}, Demand{Scopes: []string{"a"}}},
		"rubbish first":      {[]string{`=;"(, Bearer scope=a`}, Demand{Scopes: []string{"a"}}},
		"escapes": {[]string{"Bearer scope=\"\x1b[2J\", resource_metadata=\"https://mcp.example/\x1b\""},
			Demand{}},
		"no scopes":    {[]string{`Bearer scope="a\\b"`}, Demand{}},
		"an odd code":  {[]string{`Bearer error="RT-hunter2"`}, Demand{}},
		"too long":     {[]string{`Bearer scope=a, x=` + long}, Demand{}},
		"a long place": {[]string{`Bearer resource_metadata="https://mcp.example/` + long[:maxName] + `"`}, Demand{}},
	} {
		if got := ReadDemand(c.fields); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func FuzzReadDemand(f *testing.F) {
	f.Add(`Bearer scope="a", resource_metadata="https://x"`)
	f.Add(`Negotiate a==, Bearer error=x`)
	f.Fuzz(func(t *testing.T, field string) {
		d := ReadDemand([]string{field})
		if !areScopes(d.Scopes) || d.Metadata != "" && !isLine(d.Metadata, maxName) || d.Code != codeOf(d.Code) {
			t.Errorf("%q: %+v", field, d)
		}
	})
}

// TestCovers: a token is for the server, or for more of the server's own host, and for nobody else.
func TestCovers(t *testing.T) {
	const server = "https://mcp.example/team/mcp"
	for resource, want := range map[string]string{
		server: "alone", server + "/": "alone", "HTTPS://MCP.example:443/team/mcp": "alone",
		"https://mcp.example/team": "more", "https://mcp.example": "more", "https://mcp.example/": "more",
		"": "", "https://mcp.example/team/mc": "", "https://mcp.example/team/mcp/x": "", "https://mcp.example/other": "",
		"https://mcp.example:8443/team/mcp": "", "https://example/team/mcp": "", "https://mcp.example.evil/team/mcp": "",
		"http://mcp.example/team/mcp": "", "https://user@mcp.example/team/mcp": "", server + "#": "", server + "?x": "",
		"https://mcp.example/team/?": "", "https://mcp.example/team/%6dcp": "", "https://mcp.example/x/../team/mcp": "",
		"mcp.example": "", "javascript:x": "", "https://mcp.example /team/mcp": "",
	} {
		alone, ok := Covers(resource, server)
		got := map[[2]bool]string{{true, true}: "alone", {false, true}: "more"}[[2]bool{alone, ok}]
		if got != want {
			t.Errorf("%q is %q of it, want %q", resource, got, want)
		}
	}
}

func TestDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		q    Question
		d    Demand
		want []string
	}{
		"a server": {Question{Of: OfServer, URL: "https://a.test/x/mcp/"}, Demand{},
			[]string{"https://a.test/.well-known/oauth-protected-resource/x/mcp",
				"https://a.test/.well-known/oauth-protected-resource"}},
		"a bare server": {Question{Of: OfServer, URL: "https://a.test/"}, Demand{},
			[]string{"https://a.test/.well-known/oauth-protected-resource"}},
		"by its word": {Question{Of: OfServer, URL: "https://a.test/mcp"}, Demand{Metadata: "https://A.test:443/m?x=1"},
			[]string{"https://A.test:443/m?x=1"}},
		"an issuer": {Question{Of: OfIssuer, URL: "https://a.test"}, Demand{},
			[]string{"https://a.test/.well-known/oauth-authorization-server",
				"https://a.test/.well-known/openid-configuration"}},
		"an issuer with a path": {Question{Of: OfIssuer, URL: "https://a.test:8/t/1"}, Demand{},
			[]string{"https://a.test:8/.well-known/oauth-authorization-server/t/1",
				"https://a.test:8/.well-known/openid-configuration/t/1",
				"https://a.test:8/t/1/.well-known/openid-configuration"}},
	} {
		if got, err := c.q.Documents(c.d); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	q := Question{Of: OfServer, URL: "https://a.test/mcp"}
	for _, elsewhere := range []string{
		"https://b.test/m", "http://a.test/m", "https://a.test:8443/m", "https://a.test@b.test/m", "/m", "//b.test/m",
		"https://a.test.b.test/m", "file:///etc/passwd", "https://u@a.test/m",
	} {
		if got, err := q.Documents(Demand{Metadata: elsewhere}); err == nil || got != nil ||
			!strings.Contains(err.Error(), "nothing was asked there") {
			t.Errorf("%s: %q, %v", elsewhere, got, err)
		}
	}
}

func answered(v any) Response {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return Response{Status: 200, Type: "application/json", Body: b}
}

type object map[string]any

func TestReadResource(t *testing.T) {
	q := Question{Of: OfServer, URL: "https://mcp.example/mcp"}
	good := func(change object) Response {
		m := object{"resource": q.URL, "authorization_servers": []string{"https://login.example"},
			"scopes_supported": []string{"a"}}
		for k, v := range change {
			m[k] = v
		}
		return answered(m)
	}
	f, err := q.ReadDocument(good(nil), Demand{Scopes: []string{"b"}})
	want := &Resource{ID: q.URL, Issuers: []string{"https://login.example"}, Scopes: []string{"a"}, Wanted: []string{"b"}}
	if err != nil || !reflect.DeepEqual(f.Server, want) {
		t.Errorf("%+v, %v", f.Server, err)
	}
	many := make([]string, maxIssuers+1)
	for i := range many {
		many[i] = fmt.Sprintf("https://%d.example", i)
	}
	for name, c := range map[string]struct {
		r    Response
		want string
	}{
		"of somebody else": {good(object{"resource": "https://bank.example/mcp"}), "a token would be for somebody else"},
		"of another path": {good(object{"resource": "https://mcp.example/other"}),
			"a token would be for somebody else"},
		"by another case":       {good(object{"resource": nil, "Resource": q.URL}), "does not say which resource"},
		"of nobody":             {good(object{"resource": nil}), "does not say which resource"},
		"no issuer":             {good(object{"authorization_servers": nil}), "names no authorization server"},
		"issuers of other type": {good(object{"authorization_servers": "https://x"}), "is not a list of texts"},
		"too many":              {good(object{"authorization_servers": many}), "more than 16"},
		"a plain issuer": {good(object{"authorization_servers": []string{"http://login.example"}}),
			"names \"http://login.example\" as"},
		"loopback": {good(object{"authorization_servers": []string{"https://127.0.0.1:1234"}}),
			"no address of a private network"},
		"loopback of IPv6": {good(object{"authorization_servers": []string{"https://[::1]"}}),
			"no address of a private network"},
		"mapped loopback": {good(object{"authorization_servers": []string{"https://[::ffff:127.0.0.1]"}}),
			"no address of a private network"},
		"metadata of a cloud": {good(object{"authorization_servers": []string{"https://169.254.169.254"}}),
			"no address of a private network"},
		"an odd loopback": {good(object{"authorization_servers": []string{"https://0x7f.1"}}),
			"as an authorization server"},
		"localhost": {good(object{"authorization_servers": []string{"https://localhost"}}),
			"no address of a private network"},
		"a second bad one": {good(object{"authorization_servers": []string{"https://login.example", "file:///x"}}),
			"as an authorization server"},
		"a query": {good(object{"authorization_servers": []string{"https://login.example/?x"}}),
			"as an authorization server"},
		"a user": {good(object{"authorization_servers": []string{"https://a@login.example"}}),
			"as an authorization server"},
		"escapes": {good(object{"authorization_servers": []string{"https://login.example/\x1b[2J"}}),
			"as an authorization server"},
		"no object": {answered([]string{}), "not a JSON object"},
		"a page": {Response{Status: 200, Type: "text/html", Body: []byte("<html>")},
			"not of the type application/json"},
		"nothing":    {Response{Status: 404}, "answered 404"},
		"a redirect": {Response{Status: 302}, "a redirect, which pfar does not follow"},
	} {
		_, err := q.ReadDocument(c.r, Demand{})
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if f, err = q.ReadDocument(good(object{"scopes_supported": slices.Repeat([]string{"x"}, 1000)}),
		Demand{}); err != nil || f.Server.Scopes != nil {
		t.Errorf("of too many scopes it keeps %d, %v", len(f.Server.Scopes), err)
	}
	q.Issuer = "https://127.0.0.1:1234"
	if _, err := q.ReadDocument(good(object{"authorization_servers": []string{q.Issuer}}), Demand{}); err != nil {
		t.Errorf("the owner's own: %v", err)
	}
	if f, err = q.NoDocument(Demand{Scopes: []string{"b"}}); err != nil || f.Server.ID != q.URL ||
		!slices.Equal(f.Server.Issuers, []string{"https://mcp.example"}) {
		t.Errorf("%+v, %v", f.Server, err)
	}
}

func TestReadMetadata(t *testing.T) {
	q := Question{Of: OfIssuer, URL: "https://login.example/t"}
	good := func(change object) Response {
		m := object{
			"issuer": q.URL, "authorization_endpoint": "https://login.example/auth",
			"token_endpoint":        "https://login.example/token",
			"registration_endpoint": "https://login.example/reg", "code_challenge_methods_supported": []string{"plain", "S256"},
			"authorization_response_iss_parameter_supported": true, "client_id_metadata_document_supported": true,
			"scopes_supported": []string{"offline_access"}, "response_types_supported": []string{"code"},
			"token_endpoint_auth_methods_supported": []string{"none"},
		}
		for k, v := range change {
			m[k] = v
		}
		return answered(m)
	}
	f, err := q.ReadDocument(good(nil), Demand{})
	want := &Metadata{
		Issuer: q.URL, Authorization: "https://login.example/auth", Token: "https://login.example/token",
		Registration: "https://login.example/reg",
		Offline:      true, NamesItself: true, Documents: true, Methods: []string{"none"},
	}
	if err != nil || !reflect.DeepEqual(f.Issuer, want) {
		t.Errorf("%+v, %v", f.Issuer, err)
	}
	const elsewhere = "another server answers in its place"
	device := object{"device_authorization_endpoint": "https://login.example/d"}
	for name, c := range map[string]struct {
		change object
		want   string
	}{
		"another issuer": {object{"issuer": "https://evil.example"}, elsewhere},
		"a slash more":   {object{"issuer": q.URL + "/"}, elsewhere},
		"another case":   {object{"issuer": "https://LOGIN.example/t"}, elsewhere},
		"no issuer":      {object{"issuer": nil, "Issuer": q.URL}, elsewhere},
		"no PKCE":        {object{"code_challenge_methods_supported": nil}, "does not say that it takes PKCE"},
		"plain PKCE": {object{"code_challenge_methods_supported": []string{"plain"}},
			"does not say that it takes PKCE"},
		"a plain page":           {object{"authorization_endpoint": "http://login.example/auth"}, "want https://HOST/PATH"},
		"a script":               {object{"authorization_endpoint": "javascript:alert(1)"}, "want https://HOST/PATH"},
		"a file":                 {object{"authorization_endpoint": "file:///etc/passwd"}, "want https://HOST/PATH"},
		"a plain token endpoint": {object{"token_endpoint": "http://login.example/token"}, "want https://HOST/PATH"},
		"a user":                 {object{"token_endpoint": "https://u:p@login.example/token"}, "want https://HOST/PATH"},
		"a fragment":             {object{"token_endpoint": "https://login.example/token#x"}, "want https://HOST/PATH"},
		"a line":                 {object{"token_endpoint": "https://login.example/to\nken"}, "want https://HOST/PATH"},
		"private token endpoint": {object{"token_endpoint": "https://10.0.0.1/token"}, "an address of a private network"},
		"loopback registration": {object{"registration_endpoint": "https://127.0.0.1:9/r"},
			"an address of a private network"},
		"a cloud's metadata": {object{"device_authorization_endpoint": "https://169.254.169.254/"},
			"an address of a private network"},
		"no token endpoint":     {object{"token_endpoint": nil}, "no token_endpoint"},
		"no way":                {object{"authorization_endpoint": nil}, "no authorization_endpoint"},
		"no codes":              {object{"response_types_supported": []string{"token"}}, "no authorization_endpoint"},
		"lists of another type": {object{"response_types_supported": "code"}, "is not a list of texts"},
		"methods without an end": {object{"token_endpoint_auth_methods_supported": slices.Repeat([]string{"x"}, 99)},
			"ways to authenticate"},
		"scopes without an end": {object{"scopes_supported": slices.Repeat([]string{"x"}, 9999)}, ""},
		"a device alone": {object{"authorization_endpoint": nil,
			"device_authorization_endpoint": device["device_authorization_endpoint"]}, ""},
		"a device instead of pkce": {object{"code_challenge_methods_supported": nil,
			"device_authorization_endpoint": device["device_authorization_endpoint"]}, ""},
	} {
		f, err := q.ReadDocument(good(c.change), Demand{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if strings.HasPrefix(name, "a device") && (f.Issuer == nil || f.Issuer.Authorization != "") {
			t.Errorf("%s: %+v", name, f.Issuer)
		}
	}
	// What the owner has named may be on this machine; what another issuer names may not.
	own := Question{Of: OfIssuer, URL: "https://127.0.0.1:1", Issuer: "https://127.0.0.1:1"}
	m := object{"issuer": own.URL, "authorization_endpoint": own.URL + "/a", "token_endpoint": own.URL + "/t"}
	if _, err := own.ReadDocument(good(m), Demand{}); err != nil {
		t.Errorf("the owner's own: %v", err)
	}
	own.Issuer = "https://127.0.0.1:2"
	if _, err := own.ReadDocument(good(m), Demand{}); err == nil {
		t.Error("another one's may be at loopback")
	}
	if got := (Metadata{Issuer: "https://a.test", Authorization: "https://b.test:8/x", Token: "https://a.test/t",
		Device: "https://[2001:db8::1]/d"}).Hosts(); !slices.Equal(got,
		[]string{"b.test:8", "a.test:443", "[2001:db8::1]:443"}) {
		t.Errorf("its hosts are %q", got)
	}
}

func TestRegistration(t *testing.T) {
	c, err := Metadata{Device: "https://a.test/d"}.ClientFor(50000)
	if err != nil {
		t.Fatal(err)
	}
	body, err := c.Request()
	const want = `{"client_name":"pfar","redirect_uris":["http://127.0.0.1:50000/callback"],` +
		`"grant_types":["authorization_code",` +
		`"refresh_token","urn:ietf:params:oauth:grant-type:device_code"],"response_types":["code"],` +
		`"token_endpoint_auth_method":"none","application_type":"native"}`
	if err != nil || string(body) != want {
		t.Errorf("%s, %v", body, err)
	}
	for methods, want := range map[string]string{
		"": "none", "none": "none", "client_secret_basic none": "none", "client_secret_basic": "client_secret_basic",
		"client_secret_basic client_secret_post": "client_secret_post", "private_key_jwt": "",
	} {
		got, err := Metadata{Issuer: "https://a.test", Methods: strings.Fields(methods)}.ClientFor(1)
		if got.Method != want || (err == nil) != (want != "") {
			t.Errorf("%s: %+v, %v", methods, got, err)
		}
	}
	q := Question{Of: OfClient, URL: "https://a.test/reg", Client: &c}
	ours := []string{"http://127.0.0.1:50000/callback"}
	for name, c := range map[string]struct {
		answer any
		want   *Registered
		fails  string
	}{
		"a public client": {object{"client_id": "x", "redirect_uris": ours}, &Registered{ID: "x", Method: "none"}, ""},
		"a secret for nothing": {object{"client_id": "x", "client_secret": "CS-hunter2"}, &Registered{ID: "x",
			Method: "none"}, ""},
		"a confidential client": {object{"client_id": "x", "client_secret": "s",
			"token_endpoint_auth_method": "client_secret_basic"}, &Registered{ID: "x", Secret: "s",
			Method: "client_secret_basic"}, ""},
		"no secret": {object{"client_id": "x", "token_endpoint_auth_method": "client_secret_post"}, nil,
			"secret cannot be used"},
		"a secret with a line": {object{"client_id": "x", "client_secret": "CS-hunter2\r\nX: y",
			"token_endpoint_auth_method": "client_secret_post"}, nil, "secret cannot be used"},
		"another method": {object{"client_id": "x", "token_endpoint_auth_method": "private_key_jwt"}, nil,
			"which pfar cannot do"},
		"another redirect": {object{"client_id": "x", "redirect_uris": []string{"https://evil.example/"}}, nil,
			"another redirect address"},
		"one redirect more": {object{"client_id": "x", "redirect_uris": append(ours, "https://evil.example/")}, nil,
			"another redirect address"},
		"no id":              {object{"client_secret": "CS-hunter2"}, nil, "no client id"},
		"an id with escapes": {object{"client_id": "\x1b[2J"}, nil, "no client id"},
		"a huge id":          {object{"client_id": strings.Repeat("x", maxName+1)}, nil, "no client id"},
		"an error": {object{"error": "invalid_redirect_uri", "error_description": "hunter2"}, nil,
			"invalid_redirect_uri"},
	} {
		f, err := q.ReadClient(answered(c.answer))
		if c.fails == "" && (err != nil || !reflect.DeepEqual(f.Client, c.want)) {
			t.Errorf("%s: %+v, %v", name, f.Client, err)
		}
		if c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(),
			"hunter2")) {
			t.Errorf("%s: %v, want %q", name, err, c.fails)
		}
	}
}

// TestFoundIsOfTheQuestion: a process that was taken over answers another question than it was asked.
func TestFoundIsOfTheQuestion(t *testing.T) {
	r := &Resource{ID: "https://a.test/mcp", Issuers: []string{"https://b.test"}}
	server := Question{Of: OfServer, URL: "https://a.test/mcp"}
	if err := server.Finds(Found{Server: r}); err != nil {
		t.Error(err)
	}
	for _, q := range []Question{{Of: OfIssuer, URL: "https://a.test/mcp"}, {Of: OfClient, URL: "https://a.test/mcp",
		Client: &Client{}}, {}} {
		if q.Finds(Found{Server: r}) == nil {
			t.Errorf("%+v takes it", q)
		}
	}
	if server.Finds(Found{}) == nil {
		t.Error("nothing is an answer")
	}
	for _, q := range []Question{{}, {Of: OfServer, URL: "http://a.test"}, {Of: OfClient, URL: "https://a.test"},
		{Of: OfServer, URL: "https://a.test", Client: &Client{}}, {Of: "x", URL: "https://a.test"}, {Of: OfServer,
			URL: "https://a.test", CA: "x"}} {
		if text, err := q.Encode(); err == nil {
			t.Errorf("%s is a question", text)
		}
	}
	text, err := aTask(nil).Encode()
	if _, ok := DecodeQuestion(text); err != nil || ok {
		t.Error("a task is a question")
	}
}

func TestClientDocument(t *testing.T) {
	text, err := ClientDocument("https://example.com/pfar.json")
	var d struct {
		ID   string   `json:"client_id"`
		Name string   `json:"client_name"`
		URIs []string `json:"redirect_uris"`
	}
	if err != nil || json.Unmarshal(text, &d) != nil || d.ID != "https://example.com/pfar.json" || d.Name != "pfar" ||
		!slices.Equal(d.URIs, []string{"http://127.0.0.1/callback"}) {
		t.Errorf("%s, %v", text, err)
	}
	for _, bad := range []string{"", "x", "http://example.com/x", "https://example.com", "https://example.com/",
		"https://a@example.com/x",
		"https://example.com/x?y", "https://example.com/x#y"} {
		if text, err := ClientDocument(bad); err == nil {
			t.Errorf("%q: %s", bad, text)
		}
	}
}

// TestShows: a provider that a server has named does not lead a person to another one's page.
func TestShows(t *testing.T) {
	own := aTask(nil)
	named := aTask(func(t *Task) {
		t.Issuer = "https://issuer.example.com"
		t.Origin = &Origin{Authorization: "https://page.example.com/auth"}
	})
	for page, want := range map[string][2]bool{
		"https://login.example.com/d": {true, true}, "https://issuer.example.com/d": {true, true},
		"https://page.example.com/d": {true, true}, "https://bank.example/device": {true, false},
		"https://login.example.com:8443/d": {true, false}, "http://login.example.com/d": {}, "": {},
	} {
		if got := [2]bool{own.Shows(page), named.Shows(page)}; got != want {
			t.Errorf("%q: %v, want %v", page, got, want)
		}
	}
}
