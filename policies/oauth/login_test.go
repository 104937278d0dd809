package oauth

import (
	"errors"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func aTask(change func(*Task)) Task {
	t := Task{
		Way: ByDevice, Endpoint: "https://login.example.com/device", TokenURL: "https://login.example.com/token",
		ClientID: "CI-hunter2", ClientSecret: "CS-hunter2", Scopes: []string{"read", "write"},
	}
	if change != nil {
		change(&t)
	}
	return t
}

func TestTaskIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Task)
		want   string
	}{
		"no way":              {func(t *Task) { t.Way = "" }, `no such way to log in: ""`},
		"another way":         {func(t *Task) { t.Way = "hunter2x" }, "no such way"},
		"no client":           {func(t *Task) { t.ClientID = "" }, "client_id is missing"},
		"no token endpoint":   {func(t *Task) { t.TokenURL = "" }, "token_url is missing"},
		"a plain token url":   {func(t *Task) { t.TokenURL = "http://login.example.com/" }, "token_url is not an address"},
		"a plain device url":  {func(t *Task) { t.Endpoint = "http://login.example.com/" }, "url is not an address"},
		"a user in the url":   {func(t *Task) { t.Endpoint = "https://a@login.example.com/" }, "url is not an address"},
		"a plain code url":    {func(t *Task) { t.Way, t.Endpoint = ByCode, "javascript:alert(1)" }, "url is not an address"},
		"a scope with a line": {func(t *Task) { t.Scopes = []string{"a\nb"} }, "scopes has an entry"},
		"a relative resource": {func(t *Task) { t.Resource = "/api" }, "resource is not a URL"},
		"a fragment":          {func(t *Task) { t.Resource = "https://a.test/#x" }, "resource is not a URL"},
		"an issuer":           {func(t *Task) { t.Issuer = "https://a b" }, "issuer is not a URL"},
		"no certificates":     {func(t *Task) { t.CA = "hunter2" }, "ca contains data that is not a certificate"},
		"header, no secret":   {func(t *Task) { t.AuthStyle, t.ClientSecret = InHeader, "" }, "client_secret is missing"},
		"a private prefix":    {func(t *Task) { t.AllowPrivate = []string{"x"} }, "allow_private"},
	} {
		text, err := aTask(c.change).Encode()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "CS-hunter2") ||
			text != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := aTask(func(t *Task) { t.AllowPrivate, t.Resource = []string{"10.0.0.0/8"}, "https://api.example.com/" })
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeTask(text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := DecodeTask([]byte(`{"way":"device"}`)); err == nil {
		t.Error("half a task is one")
	}
}

// TestPolicyOfATask: a process reaches the token endpoint, for a device its other endpoint, and nothing else.
func TestPolicyOfATask(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Task)
		want   []string
	}{
		"one host": {nil, []string{"login.example.com:443", "login.example.com:443"}},
		"two hosts": {func(t *Task) { t.Endpoint = "https://device.example.com:8443/" }, []string{"login.example.com:443",
			"device.example.com:8443"}},
		"a browser": {func(t *Task) { t.Way, t.Endpoint = ByCode, "https://page.example.com/" },
			[]string{"login.example.com:443"}},
	} {
		p, err := aTask(c.change).Policy()
		var got []string
		for _, e := range p.Endpoints {
			got = append(got, e.String())
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestForm(t *testing.T) {
	in := map[string]string{"grant_type": "x", "scope": ""}
	body, basic := aTask(nil).Form(in)
	if body.Encode() != "grant_type=x" || basic == nil || *basic != [2]string{"CI-hunter2", "CS-hunter2"} {
		t.Errorf("%s, %v", body.Encode(), basic)
	}
	_, basic = aTask(func(t *Task) { t.ClientID, t.ClientSecret = "a:b", "c d%" }).Form(in)
	if *basic != [2]string{"a%3Ab", "c+d%25"} {
		t.Errorf("%v", basic)
	}
	body, basic = aTask(func(t *Task) { t.AuthStyle, t.Resource = InParams, "https://a.test" }).Form(in)
	const inParams = "client_id=CI-hunter2&client_secret=CS-hunter2&grant_type=x&resource=https%3A%2F%2Fa.test"
	if body.Encode() != inParams || basic != nil {
		t.Errorf("%s, %v", body.Encode(), basic)
	}
	body, basic = aTask(func(t *Task) { t.ClientSecret = "" }).Form(in)
	if body.Encode() != "client_id=CI-hunter2&grant_type=x" || basic != nil {
		t.Errorf("%s, %v", body.Encode(), basic)
	}
}

func TestAuthorization(t *testing.T) {
	task := aTask(func(t *Task) {
		t.Way, t.Endpoint, t.Resource = ByCode,
			"https://login.example.com/auth?prompt=consent&state=evil&redirect_uri=evil&resource=e", "https://a.test"
	})
	got, err := task.Authorization("http://127.0.0.1:1/callback", "S", Challenge("V"))
	u, _ := url.Parse(got)
	want := url.Values{
		"prompt": {"consent"}, "response_type": {"code"}, "client_id": {"CI-hunter2"}, "scope": {"read write"},
		"state": {"S"},
		"redirect_uri": {
			"http://127.0.0.1:1/callback",
		}, "code_challenge_method": {"S256"}, "resource": {"https://a.test"},
		"code_challenge": {"3mqREe8LGYYxNt4pOQS5DU7fnLaEGZ2twEqk5pcIZN0"},
	}
	if want["code_challenge"][0] = Challenge("V"); err != nil || !reflect.DeepEqual(u.Query(), want) {
		t.Errorf("%s, %v", got, err)
	}
	if !task.Leads(got) || task.Leads("https://login.example.com/other") || task.Leads("https://evil.test/auth") ||
		task.Leads("javascript:x") {
		t.Error("it is not known where it leads")
	}
	// The example of RFC 7636, appendix B.
	const challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
	if got := Challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"); got != challenge {
		t.Errorf("the challenge is %s", got)
	}
}

const grant = `{"device_code":"DC-hunter2","user_code":"ABCD-EFGH","verification_uri":"https://login.example.com/d"`

func TestDevice(t *testing.T) {
	for name, c := range map[string]struct {
		status      int
		media, body string
		want        DeviceGrant
		fails       string
	}{
		"as it should be": {200, "application/json; charset=utf-8",
			grant + `,"interval":7,"expires_in":60,"verification_uri_complete":"https://login.example.com/d?c=1"}`,
			DeviceGrant{"DC-hunter2", "ABCD-EFGH", "https://login.example.com/d", "https://login.example.com/d?c=1",
				7 * time.Second, time.Minute}, ""},
		"nothing else": {200, "application/json", grant + "}",
			DeviceGrant{"DC-hunter2", "ABCD-EFGH", "https://login.example.com/d", "", 5 * time.Second, LoginTime}, ""},
		"numbers in strings": {200, "application/json", grant + `,"interval":"6","expires_in":"99999999"}`,
			DeviceGrant{"DC-hunter2", "ABCD-EFGH", "https://login.example.com/d", "", 6 * time.Second, LoginTime}, ""},
		"odd numbers": {200, "application/json", grant + `,"interval":-1,"expires_in":1e400}`,
			DeviceGrant{"DC-hunter2", "ABCD-EFGH", "https://login.example.com/d", "", 5 * time.Second, LoginTime}, ""},
		"another page for the whole": {200, "application/json", grant + `,"verification_uri_complete":"javascript:alert(1)"}`,
			DeviceGrant{"DC-hunter2", "ABCD-EFGH", "https://login.example.com/d", "", 5 * time.Second, LoginTime}, ""},
		"Google's name": {200, "application/json", strings.Replace(grant, "_uri", "_url", 1) + "}",
			DeviceGrant{"DC-hunter2", "ABCD-EFGH", "https://login.example.com/d", "", 5 * time.Second, LoginTime}, ""},
		"nothing":      {200, "application/json", ``, DeviceGrant{}, "is not a JSON object"},
		"a list":       {200, "application/json", `[]`, DeviceGrant{}, "is not a JSON object"},
		"another type": {200, "text/html", grant + "}", DeviceGrant{}, "is not of the type application/json"},
		"no type":      {200, "", grant + "}", DeviceGrant{}, "is not of the type application/json"},
		"no code": {200, "application/json", `{"user_code":"A","verification_uri":"https://a.test"}`,
			DeviceGrant{}, "no device_code"},
		"escapes for a terminal": {200, "application/json",
			`{"device_code":"d","user_code":"\u001b[2J","verification_uri":"https://a.test"}`, DeviceGrant{}, "no user_code"},
		"a long code": {200, "application/json", `{"device_code":"d","user_code":"` + strings.Repeat("A",
			65) + `","verification_uri":"https://a.test"}`, DeviceGrant{}, "no user_code"},
		"a plain page": {200, "application/json",
			`{"device_code":"d","user_code":"A","verification_uri":"http://a.test"}`, DeviceGrant{}, "no verification_uri"},
		"a script": {200, "application/json",
			`{"device_code":"d","user_code":"A","verification_uri":"javascript:alert(1)"}`, DeviceGrant{},
			"no verification_uri"},
		"a page with a line": {200, "application/json",
			`{"device_code":"d","user_code":"A","verification_uri":"https://a.test/\u2028"}`, DeviceGrant{},
			"no verification_uri"},
		"a redirect": {302, "", "", DeviceGrant{}, "a redirect, which pfar does not follow"},
		"a refusal": {400, "application/json",
			`{"error":"unauthorized_client","error_description":"CS-hunter2\u001b"}`, DeviceGrant{}, "(unauthorized_client)"},
		"GitHub's refusal": {200, "application/json", `{"error":"device_flow_disabled"}`, DeviceGrant{},
			"(device_flow_disabled)"},
		"a secret as a code": {400, "application/json", `{"error":"CS-hunter2"}`, DeviceGrant{},
			"the provider answered 400"},
		"an object as a code": {400, "application/json", `{"error":{"code":"x"}}`, DeviceGrant{},
			"the provider answered 400"},
		"a page": {502, "text/html", `<h1>hunter2`, DeviceGrant{}, "the provider answered 502"},
	} {
		got, err := aTask(nil).Device(Response{c.status, c.media, []byte(c.body)})
		if got != c.want || (err == nil) != (c.fails == "") || err != nil && (!strings.Contains(err.Error(), c.fails) ||
			strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestTokensOfALogin(t *testing.T) {
	const good = `{"access_token":"0123456789abcdef","token_type":"Bearer"`
	for name, c := range map[string]struct {
		body  string
		want  Answer
		fails string
	}{
		"all of it": {good + `,"refresh_token":"fedcba9876543210","expires_in":3600,"scope":"read"}`,
			Answer{"0123456789abcdef", "fedcba9876543210", "Bearer", 3600, InHeader, []string{"read"}}, ""},
		"no more than it must have": {`{"access_token":"0123456789abcdef"}`, Answer{"0123456789abcdef", "", "", 0,
			InHeader, nil}, ""},
		"nulls": {good + `,"refresh_token":null,"expires_in":null,"scope":null,"error":null}`,
			Answer{"0123456789abcdef", "", "Bearer", 0, InHeader, nil}, ""},
		"a short token":       {`{"access_token":"short"}`, Answer{}, "access_token has fewer than 16 bytes"},
		"no token":            {`{"token_type":"bearer"}`, Answer{}, "access_token has fewer than 16 bytes"},
		"a broken header":     {`{"access_token":"0123456789abcde\r\nX: y"}`, Answer{}, "that no bearer token has"},
		"another type":        {`{"access_token":"0123456789abcdef","token_type":"DPoP"}`, Answer{}, "not a bearer token"},
		"a token as an error": {`{"error":"abcdefghijklmnop"}`, Answer{}, "the provider answered 200"},
		"a code as an error":  {`{"error":"the_device_code"}`, Answer{}, "the provider answered 200"},
		"an odd scope":        {good + `,"scope":"0123456789abcdef"}`, Answer{}, "scopes has an entry"},
	} {
		got, err := aTask(nil).Tokens(Response{200, "application/json", []byte(c.body)}, "abcdefghijklmnop",
			"the_device_code")
		if !reflect.DeepEqual(got, c.want) && !(len(got.Scopes) == 0 && len(c.want.Scopes) == 0 &&
			got.AccessToken == c.want.AccessToken && got.ExpiresIn == c.want.ExpiresIn) ||
			(err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err != nil && (strings.Contains(err.Error(), "abcdefghij") || strings.Contains(err.Error(), "device_code")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestObtained: the endpoint chooses the tokens, their end and scopes, and nothing else of the set.
func TestObtained(t *testing.T) {
	task := aTask(func(t *Task) { t.AllowPrivate = []string{"10.0.0.1"} })
	s, err := task.Obtained(Answer{AccessToken: "0123456789abcdef", RefreshToken: "fedcba9876543210", ExpiresIn: 60,
		TokenType: "bearer"}, now)
	want := Set{
		AccessToken: "0123456789abcdef", RefreshToken: "fedcba9876543210", TokenType: "bearer",
		Expiry: now.Add(time.Minute), Obtained: now,
		TokenURL: task.TokenURL, ClientID: "CI-hunter2", ClientSecret: "CS-hunter2", AuthStyle: InHeader,
		Scopes:       []string{"read", "write"},
		AllowPrivate: []string{"10.0.0.1"},
	}
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, %v", s, err)
	}
	s, err = task.Obtained(Answer{AccessToken: "0123456789abcdef", Scopes: []string{"read"}}, now)
	if err != nil || !s.Expiry.IsZero() || s.RefreshToken != "" || !slices.Equal(s.Scopes, []string{"read"}) {
		t.Errorf("without an end and a refresh token: %+v, %v", s, err)
	}
	if s, err := task.Obtained(Answer{}, now); err == nil || !reflect.DeepEqual(s, Set{}) {
		t.Errorf("nothing is a set: %+v", s)
	}
	if _, err := task.Obtained(Answer{AccessToken: "0123456789abcdef", RefreshToken: "short"}, now); err == nil {
		t.Error("a short refresh token is one")
	}
}

// TestPolling: RFC 8628 section 3.5.
func TestPolling(t *testing.T) {
	pending, slow := Refused{400, "authorization_pending"}, Refused{400, "slow_down"}
	for name, c := range map[string]struct {
		errs []error
		want []time.Duration // pauses; one less than errors, if the last one ends it
	}{
		"pending":         {[]error{pending, pending}, []time.Duration{5, 5}},
		"slow_down stays": {[]error{slow, pending, slow, pending}, []time.Duration{10, 10, 15, 15}},
		"denied":          {[]error{pending, Refused{400, "access_denied"}}, []time.Duration{5}},
		"expired":         {[]error{Refused{400, "expired_token"}}, nil},
		"another code":    {[]error{Refused{400, "what"}}, nil},
		"of no use":       {[]error{errors.New("x")}, nil},
		"no code":         {[]error{Refused{400, ""}}, nil},
		"too often":       {[]error{Refused{429, ""}, pending}, []time.Duration{10, 10}},
		"it cannot":       {[]error{Refused{503, ""}, Refused{503, ""}, pending}, []time.Duration{10, 20, 20}},
		"no answer at all": {[]error{Silent{errors.New("x")}, Silent{errors.New("x")}, Silent{errors.New("x")},
			Silent{errors.New("x")}, Silent{errors.New("x")}}, []time.Duration{10, 20, 40, 60}},
		"it comes back": {[]error{Silent{errors.New("x")}, Silent{errors.New("x")}, Silent{errors.New("x")},
			Silent{errors.New("x")}, pending, Silent{errors.New("x")}}, []time.Duration{10, 20, 40, 60, 60, 60}},
	} {
		p := Polling{Interval: 5 * time.Second}
		var got []time.Duration
		for i, err := range c.errs {
			var again bool
			if p, again = p.After(err); !again {
				if i != len(c.errs)-1 {
					t.Errorf("%s: it ends after %d", name, i+1)
				}
				break
			}
			got = append(got, p.Interval/time.Second)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if _, again := (Polling{}).After(Refused{}); again {
		t.Error("the zero refusal has it asked again")
	}
}

func TestRedirect(t *testing.T) {
	r := Redirect{Host: "127.0.0.1:41234", State: "STATE", At: "https://login.example.com/auth"}
	strict := r
	strict.Issuer = "https://login.example.com/tenant"
	unnamed := strict
	unnamed.Unnamed = true
	for name, c := range map[string]struct {
		r                         Redirect
		method, host, path, query string
		code                      string
		status                    int
		end                       string
	}{
		"as it should be":      {r, "GET", r.Host, "/callback", "code=C&state=STATE", "C", 0, ""},
		"more than it needs":   {r, "GET", r.Host, "/callback", "code=C&state=STATE&session_state=x", "C", 0, ""},
		"another method":       {r, "POST", r.Host, "/callback", "code=C&state=STATE", "", 405, ""},
		"HEAD":                 {r, "HEAD", r.Host, "/callback", "code=C&state=STATE", "", 405, ""},
		"another host":         {r, "GET", "evil.test:41234", "/callback", "code=C&state=STATE", "", 421, ""},
		"localhost":            {r, "GET", "localhost:41234", "/callback", "code=C&state=STATE", "", 421, ""},
		"another path":         {r, "GET", r.Host, "/callback/", "code=C&state=STATE", "", 404, ""},
		"an escaped path":      {r, "GET", r.Host, "/call%62ack", "code=C&state=STATE", "", 404, ""},
		"the favicon":          {r, "GET", r.Host, "/favicon.ico", "", "", 404, ""},
		"no state":             {r, "GET", r.Host, "/callback", "code=C", "", 400, ""},
		"another state":        {r, "GET", r.Host, "/callback", "code=C&state=STATF", "", 400, ""},
		"two states":           {r, "GET", r.Host, "/callback", "code=C&state=STATE&state=x", "", 400, ""},
		"two codes":            {r, "GET", r.Host, "/callback", "code=C&code=D&state=STATE", "", 400, ""},
		"a refusal by another": {r, "GET", r.Host, "/callback", "error=access_denied&state=x", "", 400, ""},
		"a broken query":       {r, "GET", r.Host, "/callback", "code=%zz&state=STATE", "", 400, ""},
		"a huge query":         {r, "GET", r.Host, "/callback", "state=STATE&code=" + strings.Repeat("x", 9000), "", 400, ""},
		"a refusal": {r, "GET", r.Host, "/callback",
			"error=access_denied&error_description=hunter2&state=STATE", "", 0, "(access_denied)"},
		"an odd refusal":      {r, "GET", r.Host, "/callback", "error=%1b%5b2J&state=STATE", "", 0, "the provider answered"},
		"nothing":             {r, "GET", r.Host, "/callback", "state=STATE", "", 0, "without a code"},
		"a code with a blank": {r, "GET", r.Host, "/callback", "code=a+b&state=STATE", "", 0, "without a code"},
		"its issuer": {r, "GET", r.Host, "/callback", "code=C&state=STATE&iss=https://login.example.com", "C",
			0, ""},
		"another issuer": {r, "GET", r.Host, "/callback", "code=C&state=STATE&iss=https://evil.test", "", 0,
			"at another host"},
		"another scheme": {r, "GET", r.Host, "/callback", "code=C&state=STATE&iss=http://login.example.com", "", 0,
			"at another host"},
		"the known issuer": {strict, "GET", r.Host, "/callback",
			"code=C&state=STATE&iss=https://login.example.com/tenant", "C", 0, ""},
		"not quite": {strict, "GET", r.Host, "/callback",
			"code=C&state=STATE&iss=https://login.example.com/tenant/", "", 0, "of another provider"},
		"none though known": {strict, "GET", r.Host, "/callback", "code=C&state=STATE", "", 0,
			"does not name its issuer"},
		"its refusal": {strict, "GET", r.Host, "/callback", "error=x&state=STATE&iss=https://evil.test", "", 0,
			"of another provider"},
		"none, and it need not": {unnamed, "GET", r.Host, "/callback", "code=C&state=STATE", "C", 0, ""},
		"another, and it need not": {unnamed, "GET", r.Host, "/callback", "code=C&state=STATE&iss=https://evil.test", "", 0,
			"of another provider"},
		"the zero value": {Redirect{}, "GET", "", "/callback", "code=C&state=", "", 421, ""},
		"a zero state":   {Redirect{Host: "h"}, "GET", "h", "/callback", "code=C&state=", "", 400, ""},
	} {
		j := c.r.Judge(c.method, c.host, c.path, c.query)
		end := ""
		if j.End != nil {
			end = j.End.Error()
		}
		if j.Code != c.code || j.Status != c.status || (end == "") != (c.end == "") || !strings.Contains(end, c.end) ||
			strings.Contains(end, "hunter2") {
			t.Errorf("%s: %+v", name, j)
		}
	}
}

func TestWordsOfCodes(t *testing.T) {
	for code := range codeWords {
		if codeOf(code) != code {
			t.Errorf("%q is no code", code)
		}
	}
	for _, text := range []string{"A", "a b", "a\n", "á", strings.Repeat("a", 41), "a1"} {
		if codeOf(text) != "" {
			t.Errorf("%q is a code", text)
		}
	}
}
