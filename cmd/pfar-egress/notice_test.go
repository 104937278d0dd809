package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/inspector"
)

// waits is what the gateway has sent.
const waits = `{"version":1,"waiting":2,"calls":[` +
	`{"client":"laptop","server":"mail","tool":"send","effect":"irreversible"}]}`

// took is one request that a host of notices got.
type took struct {
	path, body string
	header     http.Header
}

// taker is a host of notices over HTTPS. Only roots knows its certificate.
func taker(t *testing.T, f http.HandlerFunc) (address string, roots *x509.CertPool, got chan took) {
	t.Helper()
	got = make(chan took, 9)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- took{r.URL.RequestURI(), string(b), r.Header}
		f(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, got
}

// tells sends what waits, and returns why it could not.
func tells(t *testing.T, e inspector.External, key string, roots *x509.CertPool) string {
	t.Helper()
	e, err := e.Declared()
	if err != nil {
		t.Fatal(err)
	}
	m, err := newModel(e, key, newDialer(), roots)
	if err != nil {
		t.Fatal(err)
	}
	return toldBy(t, m, waits)
}

func toldBy(t *testing.T, m *model, waiting string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := m.tell(ctx, []byte(waiting))
	var told inspector.Told
	if err == nil {
		err = json.Unmarshal(b, &told)
	}
	if err != nil {
		t.Fatal(err)
	}
	return told.Error
}

func ofNotice(url, format string) inspector.External {
	return inspector.External{Name: "phone", URL: url, Role: inspector.Role{Notice: &inspector.Notice{Format: format}}}
}

// TestNotice: a webhook gets JSON, ntfy a message with a title, each with its key where that belongs.
func TestNotice(t *testing.T) {
	address, roots, got := taker(t, func(http.ResponseWriter, *http.Request) {})
	const text = "laptop calls mail.send (irreversible)\nand 1 more"
	hook := ofNotice(address+"/hook", inspector.Webhook)
	if why := tells(t, hook, "", roots); why != "" {
		t.Fatal(why)
	}
	r := <-got
	want := `{"text":"pfar: 2 calls wait for approval\n` + strings.ReplaceAll(text, "\n", `\n`) + `",` + waits[1:]
	if r.path != "/hook" || r.body != want || r.header.Get("Content-Type") != "application/json" ||
		r.header.Get("Authorization") != "" {
		t.Errorf("%+v", r)
	}
	phone := ofNotice(address+"/topic", inspector.Ntfy)
	phone.Key = "vault:ntfy"
	if why := tells(t, phone, "tk_hunter2", roots); why != "" {
		t.Fatal(why)
	}
	if r = <-got; r.path != "/topic" || r.body != text || r.header.Get("Title") != "pfar: 2 calls wait for approval" ||
		r.header.Get("Authorization") != "Bearer tk_hunter2" {
		t.Errorf("%+v", r)
	}
	if r.header.Values("Click") != nil {
		t.Errorf("a notice of several calls opens one of them: %+v", r)
	}
	hook.URL, hook.Key = address+"/hooks/{key}", "vault:hook"
	if why := tells(t, hook, "a/b?c", roots); why != "" {
		t.Fatal(why)
	}
	if r = <-got; r.path != "/hooks/a%2Fb%3Fc" || r.header.Get("Authorization") != "" {
		t.Errorf("%+v", r)
	}
}

// TestNoticeLinks: a tap on a notice of one call opens that call.
func TestNoticeLinks(t *testing.T) {
	const link = "https://pfar.test:7443/call/id"
	const waiting = `{"version":1,"waiting":1,"calls":[{"client":"laptop","server":"mail","tool":"send",` +
		`"effect":"irreversible","link":"` + link + `"}]}`
	address, roots, got := taker(t, func(http.ResponseWriter, *http.Request) {})
	for _, format := range inspector.Formats {
		e, err := ofNotice(address+"/topic", format).Declared()
		if err != nil {
			t.Fatal(err)
		}
		m, err := newModel(e, "", newDialer(), roots)
		if err != nil {
			t.Fatal(err)
		}
		if why := toldBy(t, m, waiting); why != "" {
			t.Fatal(why)
		}
		r := <-got
		click := map[string]string{inspector.Ntfy: link}[format]
		if !strings.Contains(r.body, link) || r.header.Get("Click") != click {
			t.Errorf("%s: %+v", format, r)
		}
	}
}

// TestNoticeFails: the owner hears why, in words that have neither the key nor what the host says.
func TestNoticeFails(t *testing.T) {
	for _, status := range []int{302, 401, 404, 500} {
		address, roots, got := taker(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			fmt.Fprint(w, "hunter2")
		})
		e := ofNotice(address+"/{key}", inspector.Webhook)
		e.Key = "vault:hook"
		if why := tells(t, e, "hunter2", roots); why != fmt.Sprintf("the host answers %d", status) || len(got) != 1 {
			t.Errorf("%d: %q, asked %d times", status, why, len(got))
		}
		if why := tells(t, e, "hunter2", nil); why == "" || strings.Contains(why, "hunter2") || len(got) != 1 {
			t.Errorf("a certificate that nobody knows: %q, asked %d times", why, len(got))
		}
	}
	for name, text := range notHTTP {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			speaks(text)(0, w, r)
		}))
		t.Cleanup(srv.Close)
		e := ofNotice(srv.URL+"/{key}", inspector.Webhook)
		e.Key = "vault:hook"
		taken := name == "an odd trailer" // by then the host has said 200
		if why := tells(t, e, "hunter2", nil); (why == "") != taken || strings.Contains(why, "hunter2") {
			t.Errorf("%s: %q", name, why)
		}
	}
	m, err := newModel(ofNotice("http://127.0.0.1:1/", inspector.Webhook), "", newDialer(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Notice = (&inspector.Notice{Format: inspector.Webhook}); toldBy(t, m, waits) == "" {
		t.Error("nobody is there")
	}
	for _, odd := range []string{"", "x", `{"version":2,"waiting":1}`, `{"version":1}`} {
		if toldBy(t, m, odd) == "" {
			t.Errorf("%q is sent", odd)
		}
	}
	m.lacks = errors.New("no key")
	if why := toldBy(t, m, waits); why != "no key" {
		t.Errorf("without its key: %q", why)
	}
}

// TestNoticeReachesNothingElse: a name that leads to a private address is not told, unless the owner has said so.
func TestNoticeReachesNothingElse(t *testing.T) {
	address, roots, got := taker(t, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(address, "https://"))
	out := newDialer()
	out.lookup = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	e := ofNotice("https://example.com:"+port+"/x", inspector.Webhook) // the test server's certificate is for it
	for _, private := range []bool{false, true} {
		if private {
			e.AllowPrivate = []string{"127.0.0.1"}
		}
		e, err := e.Declared()
		if err != nil {
			t.Fatal(err)
		}
		m, err := newModel(e, "", out, roots)
		if err != nil {
			t.Fatal(err)
		}
		why := toldBy(t, m, waits)
		if (why == "") != private || len(got) != map[bool]int{true: 1}[private] {
			t.Errorf("allowed %t: %q, asked %d times", private, why, len(got))
		}
		if !private && !strings.Contains(why, "allow_private of the notice") {
			t.Error(why)
		}
	}
}
