package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// everyLink is a link to this host's loopback in each way in which programs write its address.
func everyLink(link string) (all []string) {
	u, err := url.Parse(link)
	if err != nil {
		return nil
	}
	for _, host := range []string{
		"127.0.0.1", "localhost", "127.1.2.3", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
		"[64:ff9b::127.0.0.1]", "2130706433", "0x7f.1", "127.1", "localhost.", "here.test",
	} {
		all = append(all, fmt.Sprintf("http://%s:%s%s", host, u.Port(), u.Path))
	}
	return all
}

// TestPageFromSandboxes: no server reaches a page whose link it has, not even one that is declared to reach every port
// of this host, as one is that tries what a developer runs. It reaches what else is there.
func TestPageFromSandboxes(t *testing.T) {
	t.Parallel()
	link := startPage(t, asks()).link
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, link, http.StatusTemporaryRedirect)
			return
		}
		io.WriteString(w, "pfar on this computer, not quite")
	}))
	t.Cleanup(other.Close)
	p := start(t, map[string]string{"near.hcl": `allowed_domains = ["127.0.0.0/8:*", "[::1]:*"]
` + declare(program(t, "hostile"), nil, "")})
	p.await("near running", soon, inState("near", control.Running))
	c := p.client("/mcp/near")
	_, port, _ := net.SplitHostPort(other.Listener.Addr().String())
	if got := attack(t, c, probe{"page", "http://127.0.0.1:" + port + "/x"}); got.Blocked || got.Error != "" {
		t.Fatalf("another port, which is declared: %+v", got)
	}
	for _, to := range everyLink(link) {
		if got := attack(t, c, probe{"page", to}); !got.Blocked || got.Error != "" {
			t.Errorf("%s: %+v", to, got)
		}
	}
	r, err := c.call("fetch", map[string]any{"method": "GET", "url": other.URL + "/away"})
	if err != nil || strings.Contains(r.text, "pfar on this computer") {
		t.Errorf("redirected it has %s, %v", r.text, err)
	}
}
