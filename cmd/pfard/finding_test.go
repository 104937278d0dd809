package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// finds stands in for the process that asks a question.
func (f *fetcher) finds(q oauth.Question, e errand) error {
	policy, err := e.policy()
	if err != nil {
		return err
	}
	hosts := string(q.Of)
	for _, h := range policy.Endpoints {
		hosts += " " + h.String()
	}
	f.asked = append(f.asked, hosts)
	found, err := f.found(q)
	if err != nil {
		e.take(attach.Refreshed{Error: err.Error(), Final: true}, nil)
		return nil
	}
	content, err := json.Marshal(found)
	if err != nil {
		return err
	}
	e.take(attach.Refreshed{Asked: time.Now()}, content)
	return nil
}

// abroad is a remote server, and the authorization server that it names, as a test changes them.
type abroad struct {
	server oauth.Resource
	issuer oauth.Metadata
	client oauth.Registered
	fails  error
}

func (a *abroad) found(q oauth.Question) (oauth.Found, error) {
	switch q.Of {
	case oauth.OfServer:
		return oauth.Found{Server: &a.server}, a.fails
	case oauth.OfIssuer:
		return oauth.Found{Issuer: &a.issuer}, a.fails
	}
	return oauth.Found{Client: &a.client}, a.fails
}

const declaresRemote = `server {
  transport = "stream-http"
  url       = "https://mcp.example/mcp"
}
auth { token = "vault:far_token" }
`

// travels is a daemon with the remote server "far".
func travels(t *testing.T, declared string) (*daemon, *fetcher, *abroad, chan struct{}) {
	t.Helper()
	d, _, changed, f, _ := bureau(t)
	a := &abroad{
		server: oauth.Resource{ID: "https://mcp.example/mcp", Issuers: []string{"https://login.example"},
			Scopes: []string{"all"}},
		issuer: oauth.Metadata{Issuer: "https://login.example", Authorization: "https://login.example/auth",
			Token: "https://login.example/token", Registration: "https://login.example/reg", NamesItself: true},
		client: oauth.Registered{ID: "CI-given", Method: "none"},
	}
	f.found = a.found
	d.put(t, "far.hcl", declared)
	changed <- struct{}{}
	d.state(t)
	return d, f, a, changed
}

// abroadLogin asks for a login to the remote server, carries it out as far as it goes, and returns the task that its
// process had, if it came to that.
func (d *daemon) abroadLogin(t *testing.T, f *fetcher, l control.Login) (oauth.Task, control.SignIn, error) {
	t.Helper()
	f.asked = nil
	var last control.SignIn
	ended := make(chan error, 1)
	q := control.Request{Verb: control.LogIn, Server: "far", SettingUp: control.SettingUp{Login: &l}}
	go func() {
		ended <- d.answer(t.Context(), operator(), q, func(r control.Response) error { last = *r.SignIn; return nil })
	}()
	var got oauth.Task
	act := func(task oauth.Task, e errand) error {
		got = task
		return gives(e, attach.Refreshed{Asked: time.Now()}, granted())
	}
	select {
	case f.acts <- act:
		return got, last, <-ended
	case err := <-ended:
		return got, last, err
	}
}

// confirmed is a yes to the authorization server of abroad.
func confirmed(hosts ...string) control.Login {
	return control.Login{Confirmed: &control.Consent{Server: "https://mcp.example/mcp", Issuer: "https://login.example",
		Hosts: hosts}}
}

// TestRemoteLogin: a person says yes to whom the server names before anything goes there, each process reaches one
// host, and the next login asks nothing as long as all is the same.
func TestRemoteLogin(t *testing.T) {
	d, f, a, _ := travels(t, declaresRemote)
	_, last, err := d.abroadLogin(t, f, control.Login{})
	if c := last.Confirm; err != nil || c == nil || last.Done || c.Issuer != "https://login.example" ||
		c.Server != "https://mcp.example/mcp" || !slices.Equal(c.Hosts, []string{"login.example:443"}) || c.Resource != "" {
		t.Fatalf("%+v, %v", last.Confirm, err)
	}
	if !slices.Equal(f.asked, []string{"server mcp.example:443"}) {
		t.Errorf("before anybody says yes it asks %q", f.asked)
	}
	task, last, err := d.abroadLogin(t, f, control.Login{Confirmed: last.Confirm})
	if err != nil || !last.Done || last.Key != "far_token" || last.Name != "far" {
		t.Fatalf("%+v, %v", last, err)
	}
	want := []string{"server mcp.example:443", "issuer login.example:443", "client login.example:443"}
	if !slices.Equal(f.asked, want) {
		t.Errorf("it asks %q", f.asked)
	}
	if task.Way != oauth.ByCode || task.Endpoint != "https://login.example/auth" ||
		task.TokenURL != "https://login.example/token" || task.ClientID != "CI-given" || task.ClientSecret != "" ||
		task.Resource != "https://mcp.example/mcp" || task.Issuer != "https://login.example" || task.Unnamed ||
		task.Port < firstDynamic || !slices.Equal(task.Scopes, []string{"all"}) {
		t.Errorf("the process has %+v", task)
	}
	set, _, ok, err := d.vault.Tokens("far_token")
	if err != nil || !ok || set.Resource != task.Resource || set.Origin == nil || !set.Origin.Registered ||
		set.Origin.Issuer != "https://login.example" || set.TokenURL != task.TokenURL {
		t.Errorf("the vault has %+v, %v", set, err)
	}

	a.client.ID, a.issuer.NamesItself = "CI-another", false
	again, last, err := d.abroadLogin(t, f, control.Login{Scopes: []string{"more"}})
	if err != nil || !last.Done || again.ClientID != "CI-given" || again.Port != task.Port || !again.Unnamed ||
		!slices.Equal(again.Scopes, []string{"all", "more"}) || len(f.asked) != 2 {
		t.Errorf("the next one has %+v after %q, %v", again, f.asked, err)
	}
	for name, change := range map[string]func(){
		"another issuer":            func() { a.server.Issuers = []string{"https://evil.example"} },
		"another token endpoint":    func() { a.issuer.Token = "https://login.example/token2" },
		"a token endpoint far away": func() { a.issuer.Token = "https://evil.example/token" },
		"another page":              func() { a.issuer.Authorization = "https://evil.example/auth" },
	} {
		server, issuer := a.server, a.issuer
		change()
		task, last, err := d.abroadLogin(t, f, control.Login{})
		if err == nil || last.Done || task.TokenURL != "" || !strings.Contains(err.Error(), "than at the last login") ||
			!strings.Contains(err.Error(), "pfar vault remove far_token") {
			t.Errorf("%s: %+v, %v", name, last, err)
		}
		a.server, a.issuer = server, issuer
	}
	if after, _, _, _ := d.vault.Tokens("far_token"); after.AccessToken != set.AccessToken {
		t.Error("a failed login has changed the token")
	}
}

// TestUnknownClient: only the code of the provider's answer says that the registered client is unknown, not its words.
func TestUnknownClient(t *testing.T) {
	d, f, _, _ := travels(t, declaresRemote)
	_, last, err := d.abroadLogin(t, f, control.Login{})
	if err != nil || last.Confirm == nil {
		t.Fatalf("%+v, %v", last, err)
	}
	confirmed := last.Confirm
	for _, c := range []struct {
		code, words string
		remedy      bool
	}{
		{oauth.CodeClient, "no", true}, {"invalid_scope", "no (invalid_client)", false}, {"", "(invalid_client)", false},
	} {
		ended := make(chan error, 1)
		q := control.Request{Verb: control.LogIn, Server: "far",
			SettingUp: control.SettingUp{Login: &control.Login{Confirmed: confirmed}}}
		go func() {
			ended <- d.answer(t.Context(), operator(), q, func(control.Response) error { return nil })
		}()
		f.acts <- func(_ oauth.Task, e errand) error {
			e.take(attach.Refreshed{Error: c.words, Code: c.code, Final: true}, nil)
			return nil
		}
		err := <-ended
		if err == nil || !strings.Contains(err.Error(), c.words) ||
			strings.Contains(err.Error(), "to register another client, run pfar vault remove far_token") != c.remedy {
			t.Errorf("%q, %q: %v", c.code, c.words, err)
		}
	}
}

// TestRemoteLoginConfirmsAll: endpoints at other hosts, and a token for more than the server, want a yes of their own.
func TestRemoteLoginConfirmsAll(t *testing.T) {
	const login = "login.example:443"
	for name, c := range map[string]struct {
		change   func(*abroad)
		asked    control.Login
		confirms []string // hosts; nil: nothing
		resource string
	}{
		"a page at another host": {func(a *abroad) { a.issuer.Authorization = "https://honest.example/auth" },
			confirmed(login), []string{login, "honest.example:443"}, ""},
		"tokens at another host": {func(a *abroad) { a.issuer.Token = "https://t.example:8443/" },
			confirmed(login), []string{login, "t.example:8443"}, ""},
		"registration at another host": {func(a *abroad) { a.issuer.Registration = "https://r.example/" },
			confirmed(login), []string{login, "r.example:443"}, ""},
		"all of them": {func(a *abroad) { a.issuer.Token = "https://t.example/" }, confirmed(login, "t.example:443"), nil,
			""},
		"a yes to another issuer": {nil, control.Login{Confirmed: &control.Consent{Server: "https://mcp.example/mcp",
			Issuer: "https://other.example", Hosts: []string{login}}}, []string{login}, ""},
		"a yes to another server": {nil, control.Login{Confirmed: &control.Consent{Server: "https://other.example/mcp",
			Issuer: "https://login.example", Hosts: []string{login}}}, []string{login}, ""},
		"a yes to nothing": {nil, confirmed(), []string{login}, ""},
		"a token for the whole host": {func(a *abroad) { a.server.ID = "https://mcp.example" }, confirmed(login),
			[]string{login}, "https://mcp.example"},
		"its own": {func(a *abroad) {
			a.server.Issuers, a.issuer.Issuer = []string{"https://mcp.example"}, "https://mcp.example"
			a.issuer.Authorization, a.issuer.Token = "https://mcp.example/a", "https://mcp.example/t"
			a.issuer.Registration = "https://mcp.example/r"
		}, control.Login{}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, f, a, _ := travels(t, declaresRemote)
			if c.change != nil {
				c.change(a)
			}
			_, last, err := d.abroadLogin(t, f, c.asked)
			switch k := last.Confirm; {
			case err != nil:
				t.Error(err)
			case c.confirms == nil:
				if k != nil || !last.Done {
					t.Errorf("%+v", last)
				}
			case k == nil || !slices.Equal(k.Hosts, c.confirms) || k.Resource != c.resource || last.Done:
				t.Errorf("%+v, want %q", k, c.confirms)
			}
		})
	}
}

// TestRemoteLoginDistrusts: what a process brings back that was taken over, or a server says that means ill.
func TestRemoteLoginDistrusts(t *testing.T) {
	d, f, a, _ := travels(t, declaresRemote)
	good := *a
	for name, c := range map[string]struct {
		change func()
		words  string
	}{
		"another resource": {func() { a.server.ID = "https://bank.example/mcp" }, "a token would be for somebody else"},
		"a private issuer": {func() { a.server.Issuers = []string{"https://127.0.0.1:22"} },
			"no address of a private network"},
		"a plain issuer":      {func() { a.server.Issuers = []string{"http://login.example"} }, "as an authorization server"},
		"no issuer":           {func() { a.server.Issuers = nil }, "names no authorization server"},
		"another's metadata":  {func() { a.issuer.Issuer = "https://evil.example" }, "another server answers in its place"},
		"a plain page":        {func() { a.issuer.Authorization = "http://login.example/a" }, "want https://HOST/PATH"},
		"a private endpoint":  {func() { a.issuer.Token = "https://10.0.0.1/" }, "an address of a private network"},
		"no client to be had": {func() { a.issuer.Registration = "" }, "takes only clients that it knows"},
		"methods of others": {func() { a.issuer.Methods = []string{"private_key_jwt"} },
			"takes no client that pfar can be"},
		"an odd client": {func() { a.client.ID = "\x1b[2J" }, "no client id"},
		"an odd secret": {func() { a.client.Secret = "CS-hunter2" }, "secret cannot be used"},
		"an error":      {func() { a.fails = errors.New("the server wants no sign-in\x1b[2J") }, "wants no sign-in"},
	} {
		*a = good
		c.change()
		task, last, err := d.abroadLogin(t, f, confirmed("login.example:443", "evil.example:443"))
		if err == nil || last.Done || task.TokenURL != "" || !strings.Contains(err.Error(), c.words) ||
			strings.ContainsAny(err.Error(), "\x1b") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %+v, %v", name, last, err)
		}
	}
	*a = good
	a.issuer.Registration = ""
	_, _, err := d.abroadLogin(t, f, confirmed("login.example:443"))
	if err == nil || !strings.Contains(err.Error(), `provider "far" { client_id = "...", key = "far_token", `+
		`issuer = "https://login.example" }`) {
		t.Errorf("%v", err)
	}
	if _, _, ok, _ := d.vault.Tokens("far_token"); ok {
		t.Error("there is a token")
	}
}

// TestRemoteLoginByTheOwner: what stands in oauth.d wants no yes, and a server that names somebody else is refused.
func TestRemoteLoginByTheOwner(t *testing.T) {
	d, f, a, changed := travels(t, declaresRemote)
	oauthd := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(d.tokens.signIns.dir, "far.hcl"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		changed <- struct{}{}
		d.state(t)
	}
	const provider = "provider \"far\" {\n key = \"far_token\"\n issuer = %q\n%s\n}\n"
	oauthd(fmt.Sprintf(provider, "https://login.example", "scopes = [\"few\"]"))
	if task, last, err := d.abroadLogin(t, f, control.Login{}); err != nil || !last.Done || task.ClientID != "CI-given" ||
		!slices.Equal(task.Scopes, []string{"few"}) {
		t.Errorf("%+v, %+v, %v", task, last, err)
	}
	if err := d.vault.Set("far_client", []byte("CS-far-hunter2")); err != nil {
		t.Fatal(err)
	}
	oauthd(fmt.Sprintf(provider, "https://login.example", "client_id = \"CI-own\"\nsecret = \"vault:far_client\""))
	if task, last, err := d.abroadLogin(t, f, control.Login{}); err != nil || !last.Done || task.ClientID != "CI-own" ||
		task.ClientSecret != "CS-far-hunter2" || len(f.asked) != 2 {
		t.Errorf("%+v, %+v, %v", task, last, err)
	}
	a.server.Issuers = []string{"https://evil.example"}
	if _, last, err := d.abroadLogin(t, f, control.Login{}); err == nil || last.Done ||
		!strings.Contains(err.Error(), "says that https://login.example signs people in") {
		t.Errorf("%+v, %v", last, err)
	}
	a.server.Issuers, a.issuer.Documents = []string{"https://login.example"}, true
	if err := d.vault.Remove("far_token"); err != nil {
		t.Fatal(err)
	}
	oauthd("client_metadata = \"https://me.example/pfar.json\"\n" + fmt.Sprintf(provider, "https://login.example", ""))
	if task, last, err := d.abroadLogin(t, f, control.Login{}); err != nil || !last.Done ||
		task.ClientID != "https://me.example/pfar.json" || len(f.asked) != 2 {
		t.Errorf("%+v, %+v, %v", task, last, err)
	}
}

// TestRemoteWithoutAToken: a declaration without a place for the token is told what to write.
func TestRemoteWithoutAToken(t *testing.T) {
	d, f, _, _ := travels(t, "server {\n transport = \"stream-http\"\n url = \"https://mcp.example/mcp\"\n}\n")
	_, _, err := d.abroadLogin(t, f, control.Login{})
	if err == nil || !strings.Contains(err.Error(), `write auth = { token = "vault:far_token" } into `) ||
		!strings.Contains(err.Error(), "far.hcl") || len(f.asked) != 0 {
		t.Errorf("%v after %q", err, f.asked)
	}
}

// TestRemoteLoginShowsConfirmedPages: the page on which a person enters a code is at a host that was confirmed.
func TestRemoteLoginShowsConfirmedPages(t *testing.T) {
	d, f, a, _ := travels(t, declaresRemote)
	a.issuer.Device = "https://login.example/device"
	l := confirmed("login.example:443")
	l.Way = oauth.ByDevice
	q := control.Request{Verb: control.LogIn, Server: "far", SettingUp: control.SettingUp{Login: &l}}
	for page, words := range map[string]string{
		"https://bank.example/device": "at a host that nobody has confirmed; nothing was stored",
		"https://login.example/d":     "",
	} {
		ended := make(chan error, 1)
		go func() {
			ended <- d.answer(t.Context(), operator(), q, func(control.Response) error { return nil })
		}()
		f.acts <- func(_ oauth.Task, e errand) error {
			if err := e.show(attach.Progress{URL: page, Code: "A-B"}, f); err != nil {
				return errors.New("its process has failed")
			}
			return gives(e, attach.Refreshed{Asked: time.Now()}, granted())
		}
		if err := <-ended; (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", page, err)
		}
	}
}
