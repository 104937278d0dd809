package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pfar/pfar/units/control"
)

const (
	rightPing = "ping_right_0123456789"
	wrongPing = "ping_wrong_0123456789"
)

// ping puts a service into the catalogue whose server says whether its secret is the right one.
func (p *pfar) ping() {
	p.t.Helper()
	at := filepath.Join(p.home, "ping")
	check(p.t, os.Mkdir(at, 0o755))
	check(p.t, os.WriteFile(filepath.Join(at, "echo"), mustRead(p.t, program(p.t, "echo")), 0o755))
	put(p.t, filepath.Join(at, "ping.sh"), `case "$PING_TOKEN" in ping_right*) is=right ;; *) is=wrong ;; esac
echo "ping is $is" >&2
exec "$(dirname "$0")/echo" -label "$is"
`)
	for dir, text := range map[string]string{
		"services.d": fmt.Sprintf(`service "ping" {
  setup {
    title   = "Ping"
    summary = "Says what it is told"
    command = "/bin/sh"
    args    = [%q]
    secret "PING_TOKEN" {
      key     = "ping_token"
      deliver = "env"
      where   = "Invent one."
    }
    test "label" {
      arguments = {}
      answer    = "right"
    }
  }
}
`, filepath.Join(at, "ping.sh")),
		"policies.d": "server \"ping\" {\n  relax = \"a test\"\n  reads = [\"label\"]\n}\n",
	} {
		dir = filepath.Join(p.home, dir)
		check(p.t, os.MkdirAll(dir, 0o755))
		put(p.t, filepath.Join(dir, "ping.hcl"), text)
	}
}

// sends fills in a page's form as a browser does, and returns when the page has taken it.
func sends(t testing.TB, link, value string) {
	t.Helper()
	text, err := looksAt(link)
	check(t, err)
	turn := regexp.MustCompile(`name="turn" value="([^"]+)"`).FindStringSubmatch(text)
	if turn == nil {
		t.Fatalf("the page has no form: %s", text)
	}
	form := url.Values{"turn": {turn[1]}, "act": {"enter"}, "value": {value}}
	r, err := http.NewRequest(http.MethodPost, link, strings.NewReader(form.Encode()))
	check(t, err)
	at, err := url.Parse(link)
	check(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://"+at.Host)
	answer, err := http.DefaultTransport.RoundTrip(r)
	check(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("the page answers %s", answer.Status)
	}
}

// looksAt is what a page says.
func looksAt(link string) (string, error) {
	r, err := http.Get(link)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

// dying is a set-up that a model has begun.
type dying struct {
	*pfar
	*wishing
	t *testing.T
}

func newDying(t *testing.T) *dying {
	p := prepare(t, nil)
	p.ping()
	p.declareWishing()
	p.up()
	return &dying{p, p.wishing(t), t}
}

// kills kills a process of pfar's.
func (d *dying) kills(name string) {
	d.t.Helper()
	pid := d.child(name)
	if pid == 0 {
		d.t.Fatalf("there is no %s", name)
	}
	check(d.t, syscall.Kill(pid, syscall.SIGKILL))
}

// anew has pfar brought up again, and its client with it.
func (d *dying) anew() {
	d.t.Helper()
	d.again()
	d.wishing = d.pfar.wishing(d.t)
}

// another is a link that is not the one before. The model may be told first that a set-up has ended.
func (d *dying) another(before string, ended int) (link string) {
	d.t.Helper()
	told := 0
	eventually(d.t, func() bool {
		text, isError := d.wishes("ping")
		if isError {
			told++
		}
		if told > ended || isError && !strings.Contains(text, "Ask the person before you try again") {
			d.t.Fatalf("pfar__connect says %s", text)
		}
		link = linkOfPage.FindString(text)
		return link != "" && link != before
	})
	if told != ended {
		d.t.Error("the model is not told that the set-up has ended")
	}
	return link
}

// connects enters the right value at a link, and sees the tools appear.
func (d *dying) connects(link string) {
	d.t.Helper()
	sends(d.t, link, rightPing)
	d.connected()
}

func (d *dying) connected() {
	d.t.Helper()
	eventually(d.t, func() bool { return slices.Contains(d.names(), "ping__echo") })
	eventually(d.t, func() bool {
		text, _ := d.wishes("ping")
		return strings.Contains(text, "ping is connected as the server ping")
	})
}

// untouched wants nothing stored and nothing declared.
func (d *dying) untouched() {
	d.t.Helper()
	if out, _, _ := d.command("vault", "list"); strings.Contains(out, "ping_token") {
		d.t.Errorf("the vault has %s", out)
	}
	if _, err := os.Stat(d.path("ping.hcl")); err == nil {
		d.t.Error("the server is declared")
	}
}

// gone wants nobody to answer at a link.
func (d *dying) gone(link string) {
	d.t.Helper()
	if text, err := looksAt(link); err == nil && !strings.Contains(text, "no such page") {
		d.t.Errorf("%s is there: %s", link, text)
	}
}

// TestPageDies: whatever process is killed while a page waits, or when it has just taken a value, the set-up goes on
// or is begun anew by the next calls of pfar__connect. Nothing is half stored.
func TestPageDies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, d *dying){
		"the page waits":    pageWaits,
		"the page has sent": pageHasSent,
		"the gateway":       gatewayDies,
		"pfard waits":       pfardWaits,
		"pfard has it":      pfardHasIt,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newDying(t))
		})
	}
}

// pageWaits: the set-up ends with its page, the record says why, and there is a new link.
func pageWaits(t *testing.T, d *dying) {
	first := d.linked("ping")
	d.kills("pfar-setup")
	second := d.another(first, 1)
	d.gone(first)
	d.untouched()
	out, stderr, code := d.command("audit", "--kind", "set-up")
	if code != 0 || !strings.Contains(out, "its page was closed") {
		t.Errorf("the audit: %d, %s%s", code, out, stderr)
	}
	d.connects(second)
}

// pageHasSent: the value is tried all the same. Since it is wrong, there is another page.
func pageHasSent(t *testing.T, d *dying) {
	first := d.linked("ping")
	sends(t, first, wrongPing)
	d.kills("pfar-setup")
	second := d.another(first, 0)
	text, err := looksAt(second)
	check(t, err)
	if !strings.Contains(text, "That did not work") || !strings.Contains(text, "2 more times") ||
		strings.Contains(text, wrongPing) {
		t.Errorf("the second page says %s", text)
	}
	sends(t, second, rightPing)
	d.kills("pfar-setup")
	d.connected()
}

// gatewayDies: the page is there as before, and the next gateway finds it.
func gatewayDies(t *testing.T, d *dying) {
	link := d.linked("ping")
	d.kills("pfar-gateway")
	eventually(t, func() bool {
		text, _, err := d.tries("pfar__connect", map[string]any{"service": "ping"})
		return err == nil && strings.Contains(text, link)
	})
	sends(t, link, rightPing)
	d.kills("pfar-gateway")
	eventually(t, func() bool {
		text, _, err := d.tries("pfar__connect", map[string]any{"service": "ping"})
		return err == nil && strings.Contains(text, "ping is connected")
	})
	d.connected()
}

// pfardWaits: the next one goes on, with another page.
func pfardWaits(t *testing.T, d *dying) {
	first := d.linked("ping")
	check(t, syscall.Kill(d.daemon(), syscall.SIGKILL))
	<-d.ended
	d.anew()
	d.untouched()
	second := d.another(first, 0)
	d.gone(first)
	d.connects(second)
}

// pfardHasIt: the value is in the vault whole, or not at all, and then it is asked for again.
func pfardHasIt(t *testing.T, d *dying) {
	first := d.linked("ping")
	sends(t, first, rightPing)
	check(t, syscall.Kill(d.daemon(), syscall.SIGKILL))
	<-d.ended
	d.anew()
	d.gone(first)
	asked := false
	eventually(t, func() bool {
		text, isError := d.wishes("ping")
		if link := linkOfPage.FindString(text); link != "" && !asked {
			asked = true
			t.Log("the value was lost")
			sends(t, link, rightPing)
		}
		if isError {
			t.Fatalf("pfar__connect says %s", text)
		}
		return strings.Contains(text, "ping is connected")
	})
	d.connected()
	if s := server(d.awaitRunning("ping"), "ping"); s.State != control.Running {
		t.Errorf("it is %+v", s)
	}
}
