package systemd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/image"
	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// bringBrowser brings this host's Chromium and an X server for it, with the libraries that Debian's image lacks, and a
// Node.js that is new enough for the server.
func bringBrowser(ctx context.Context, dir string) error {
	debian, err := image.Root(ctx)
	if err != nil {
		return err
	}
	const chromium, display, keyboard = "/usr/lib/chromium/chromium", "/usr/bin/Xtigervnc", "/usr/bin/xkbcomp"
	out, err := exec.CommandContext(ctx, "ldd", chromium, display, keyboard).Output()
	if err != nil {
		return errors.Join(errors.New("finding what Chromium and Xtigervnc need: are they installed? tests/setup.sh chromium Xtigervnc does that"), err)
	}
	files := []string{filepath.Dir(chromium), display, keyboard, "/usr/share/X11/xkb"}
	for _, library := range regexp.MustCompile(`(?m)=> (/\S+)`).FindAllStringSubmatch(string(out), -1) {
		files = append(files, library[1])
	}
	for _, name := range []string{"libsoftokn3", "libfreebl3", "libfreeblpriv3", "libnssckbi"} { // by name, while it runs
		found, err := filepath.Glob("/usr/lib/*/" + name + ".so")
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	for _, file := range append(files, "/etc/fonts", "/usr/share/fonts") {
		folder, err := filepath.EvalSymlinks(filepath.Dir(file))
		if err != nil {
			return err
		}
		file = filepath.Join(folder, filepath.Base(file))
		if _, err := os.Stat(filepath.Join(debian, file)); err == nil {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			continue // without fonts, letters are boxes
		}
		to := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := command(ctx, nil, "cp", "-RL", "--preserve=mode", file, to); err != nil {
			return err
		}
	}
	clients := os.Getenv("PFAR_TEST_CLIENTS")
	if clients == "" {
		return errors.New("finding Node.js from npm: PFAR_TEST_CLIENTS is not set; make test-systemd does that")
	}
	return command(ctx, nil, "cp", "-L", filepath.Join(clients, "node_modules/.bin/node"), filepath.Join(dir, programs))
}

// site answers with a page that asks a stranger's host and a service of the machine's own, and writes down who came.
const site = `
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("came", self.headers["Host"], self.path, flush=True)
        page = b"""<title>shop</title><p id=p>before</p><script>
const tries = ["http://evil.example:8080/loot", "http://127.0.0.1:8080/inner", "http://169.254.169.254/"].map(u => fetch(u, {mode: "no-cors"}).catch(() => 0))
Promise.all(tries).then(() => document.getElementById("p").textContent = "all has been tried")</script>"""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
    def log_message(self, *_): pass
for address in ["127.0.0.2", "127.0.0.66", "127.0.0.1"]:
    threading.Thread(target=http.server.ThreadingHTTPServer((address, 8080), Handler).serve_forever).start()
`

// shopping boots a machine with the site, and with the example of a browser, which may open that. It returns a function
// that opens its page.
func shopping(t *testing.T, example string) (m *bed.Machine, open func()) {
	t.Helper()
	m = appliance(t)
	m.Put(t, "/etc/hosts", m.Read(t, "/etc/hosts")+"127.0.0.2 www.shop.example\n127.0.0.66 evil.example\n", 0o644)
	m.Put(t, "/root/site.py", site, 0o644)
	m.Run(t, "systemd-run", "--quiet", "--unit=site", "python3", "/root/site.py")
	text, err := os.ReadFile(filepath.Join(root, "examples", example+".hcl"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^allowed_domains.*$`).ReplaceAllLiteralString(string(text), "allowed_domains = [\"www.shop.example:8080\"]\nallow_private = { \"www.shop.example\" = \"127.0.0.2\" }")
	declared = strings.Replace(declared, `command = "node"`, `command = "`+programs+`/node"`, 1)
	m.Put(t, "/etc/pfar/mcp.d/"+example+".hcl", declared, 0o644)
	becomes(t, m, example, control.Sleeping)
	return m, func() {
		t.Helper()
		bed.Eventually(t, 3*soon, func() error {
			r := m.Try("pfar", "call", example+".browser_navigate", "--url", "http://www.shop.example:8080/")
			if !strings.Contains(r.Stdout, "Page Title: shop") {
				return errors.New(r.String() + m.Try("journalctl", "--no-pager", "--lines=20", "-u", "pfar-mcp@"+example).Stdout)
			}
			return nil
		})
	}
}

// TestBrowser: the example of a browser runs under its units, with all that confines those, and reaches what is
// declared alone.
func TestBrowser(t *testing.T) {
	t.Parallel()
	m, open := shopping(t, "browser")
	open()
	if r := m.Try("pfar", "call", "browser.browser_wait_for", "--text", "all has been tried"); !strings.Contains(r.Stdout, "all has been tried") {
		t.Errorf("the page's script: %s", r)
	}
	came := m.Journal(t, "site.service")
	if !strings.Contains(came, "came www.shop.example:8080 /") || strings.Contains(came, "loot") || strings.Contains(came, "inner") {
		t.Errorf("to the site came %s", came)
	}
	for _, refused := range []string{"evil.example:8080 (name-not-declared)", "127.0.0.1:8080 (address-literal)"} {
		if out := m.Run(t, "pfar", "audit", "--server", "browser", "--kind", "refused"); !strings.Contains(out, refused) {
			t.Errorf("no record that %s was refused: %s", refused, out)
		}
	}
	m.Run(t, "systemctl", "restart", "pfar-mcp@browser")
	open()
}

// greet connects to a display, and prints what that says first.
const greet = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(12))"

// TestDisplay: the example of a headed browser has its display under its units as well, also when it was started again,
// and the server's own user gets at that, as pfar-declaration(5) has it, and no other but root.
func TestDisplay(t *testing.T) {
	t.Parallel()
	m, open := shopping(t, "browser-headed")
	const home = "/var/lib/pfar/home/browser-headed"
	for range 2 {
		open()
		own := strings.TrimSpace(m.Run(t, "stat", "-c", "%u", home))
		for uid, may := range map[string]bool{"0": true, own: true, "1000": false, "60999": false} {
			r := m.Try("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "python3", "-c", greet, home+"/display")
			if strings.Contains(r.Stdout, "RFB 003.008") != may || strings.Contains(r.Stderr, "PermissionError") == may {
				t.Errorf("the display for uid %s: %s", uid, r)
			}
		}
		m.Run(t, "systemctl", "restart", "pfar-mcp@browser-headed")
	}
}
